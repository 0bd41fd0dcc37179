package differential;

/** The classes of Kafka 2.3. */
public final class Main23 {
    private Main23() {
    }

    public static void main(String[] arguments) throws Exception {
        Harness.run(Manager23::new);
    }
}
