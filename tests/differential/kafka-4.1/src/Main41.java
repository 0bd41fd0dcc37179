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
        switch (start.get("model").asText()) {
            case "validator":
                return new Validator41();
            case "coordinator":
                return new Transaction41(start);
            default:
                return producerState(start);
        }
    }

    private static Subject producerState(JsonNode start) throws Exception {
        boolean withLog = start.path("level").asText().equals("log");
        return withLog ? new Log41(start) : new Manager41(start);
    }
}
