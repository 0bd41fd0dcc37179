import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.function.IntPredicate;
import java.util.stream.Collectors;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * What Kafka's controller makes of a partition once a broker leaves, as generateLeaderAndIsrUpdates asks it.
 *
 * Reads lines "replicas isr leader elr lastKnownElr minIsr unclean elrEnabled broker alive", lists with commas or "-".
 * Prints "leader isr elr recovering".
 */
public class Elections {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split(" ");
            int[] replicas = list(f[0]);
            PartitionRegistration partition = new PartitionRegistration.Builder()
                .setReplicas(replicas).setDirectories(DirectoryId.migratingArray(replicas.length))
                .setIsr(list(f[1])).setLeader(Integer.parseInt(f[2])).setElr(list(f[3])).setLastKnownElr(list(f[4]))
                .setLeaderRecoveryState(LeaderRecoveryState.RECOVERED).setLeaderEpoch(100).setPartitionEpoch(200).build();
            int broker = Integer.parseInt(f[8]);
            int[] alive = list(f[9]);
            int least = Math.min(Integer.parseInt(f[5]), replicas.length);
            PartitionChangeBuilder builder = builder(partition, least, Boolean.parseBoolean(f[7]),
                r -> r != broker && Arrays.stream(alive).anyMatch(a -> a == r));
            builder.setDefaultDirProvider(id -> DirectoryId.MIGRATING);
            if (Boolean.parseBoolean(f[6])) {
                builder.setElection(PartitionChangeBuilder.Election.UNCLEAN);
            }
            List<Integer> isr = new ArrayList<>();
            for (int replica : partition.isr) {
                if (replica != broker) {
                    isr.add(replica);
                }
            }
            builder.setTargetIsr(isr);
            Optional<ApiMessageAndVersion> change = builder.build();
            if (change.isPresent()) {
                partition = partition.merge((PartitionChangeRecord) change.get().message());
            }
            int[] elr = partition.elr.clone();
            Arrays.sort(elr);
            System.out.println(partition.leader + " " + text(partition.isr) + " " + text(elr) + " "
                + (partition.leaderRecoveryState == LeaderRecoveryState.RECOVERING));
        }
    }

    /** Up to 4.0 whether ELR is on is set, later it is given to the constructor. */
    private static PartitionChangeBuilder builder(PartitionRegistration partition, int least, boolean elr,
            IntPredicate acceptable) throws ReflectiveOperationException {
        Constructor<?> maker = PartitionChangeBuilder.class.getConstructors()[0];
        List<Object> given = new ArrayList<>(List.of(partition, Uuid.randomUuid(), 0, acceptable,
            MetadataVersion.latestTesting(), least));
        if (maker.getParameterCount() > given.size()) {
            given.add(elr);
            return (PartitionChangeBuilder) maker.newInstance(given.toArray());
        }
        PartitionChangeBuilder builder = (PartitionChangeBuilder) maker.newInstance(given.toArray());
        PartitionChangeBuilder.class.getMethod("setEligibleLeaderReplicasEnabled", boolean.class).invoke(builder, elr);
        return builder;
    }

    private static int[] list(String text) {
        return text.equals("-") ? new int[0] : Arrays.stream(text.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    private static String text(int[] numbers) {
        return numbers.length == 0 ? "-" : Arrays.stream(numbers).mapToObj(String::valueOf).collect(Collectors.joining(","));
    }
}
