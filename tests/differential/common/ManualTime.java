package differential;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** The clock of a case: it stands still between operations. */
final class ManualTime implements Time {
    long now;

    @Override
    public long milliseconds() {
        return now;
    }

    @Override
    public long nanoseconds() {
        return now * 1_000_000;
    }

    @Override
    public void sleep(long ms) {
        now += ms;
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("nothing waits here");
    }
}
