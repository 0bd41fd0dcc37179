import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS and, unless a second word is given, YARN of one node each on the loopback, until standard input ends:
 * {@code MiniHadoop FOLDER}. What clients need to reach them is in {@code FOLDER/conf} once they run.
 */
public final class MiniHadoop {
    private MiniHadoop() { }

    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        YarnConfiguration conf = new YarnConfiguration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, folder.resolve("dfs").toString());
        conf.set("hadoop.tmp.dir", folder.resolve("tmp").toString());
        conf.set("dfs.replication", "1");
        MiniDFSCluster files = new MiniDFSCluster.Builder(conf).numDataNodes(1).build();
        files.waitActive();
        conf.set("fs.defaultFS", files.getFileSystem().getUri().toString());
        MiniYARNCluster jobs = yarn(conf);
        write(new YarnConfiguration(jobs.getConfig()), folder.resolve("conf"));
        while (System.in.read() >= 0) { }
        jobs.stop();
        files.shutdown();
        System.exit(0);
    }

    /** A resource manager and one node manager; containers may be small, so that an audit needs less than 2 GB. */
    private static MiniYARNCluster yarn(YarnConfiguration conf) {
        conf.set("yarn.nodemanager.resource.memory-mb", "4096");
        conf.set("yarn.nodemanager.resource.cpu-vcores", "4");
        conf.set("yarn.scheduler.minimum-allocation-mb", "256");
        conf.set("yarn.scheduler.capacity.root.queues", "default");
        conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
        conf.set("yarn.scheduler.capacity.root.default.maximum-am-resource-percent", "1");
        conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99");
        MiniYARNCluster jobs = new MiniYARNCluster("auditor", 1, 1, 1);
        jobs.init(conf);
        jobs.start();
        return jobs;
    }

    /** The same settings under both names that clients look for; the folder appears with both. */
    private static void write(YarnConfiguration conf, Path folder) throws Exception {
        conf.unset("net.topology.node.switch.mapping.impl"); // of the mini cluster's own, which clients do not have
        Path part = Files.createDirectories(folder.resolveSibling("conf.part"));
        for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
            try (OutputStream out = Files.newOutputStream(part.resolve(name))) {
                conf.writeXml(out);
            }
        }
        Files.move(part, folder, StandardCopyOption.ATOMIC_MOVE);
    }
}
