package differential;

import com.fasterxml.jackson.databind.JsonNode;

/** The classes of Kafka 4.1. */
public final class Main41 {
    private Main41() {
    }

    public static void main(String[] arguments) throws Exception {
        Harness.run(Main41::create);
    }

    private static Subject create(JsonNode start) throws Exception {
        return new Manager41(start);
    }
}
