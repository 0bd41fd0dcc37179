package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** One of Kafka's classes under the operations of the conformance cases. */
interface Subject {
    /**
     * Applies one operation. Returns what the README says it returns; "outcome" is set when it is not "ok".
     * What the broker refuses is thrown as the broker throws it.
     */
    ObjectNode apply(String op, JsonNode args) throws Exception;

    /** The whole state after an operation, in the words of the README. */
    ObjectNode state() throws Exception;

    /** Lets go of what the subject holds (files). */
    default void close() throws Exception {
    }

    /** Builds the subject that a case begins with. */
    interface Factory {
        Subject create(JsonNode start) throws Exception;
    }
}
