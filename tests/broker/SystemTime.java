package org.apache.kafka.common.utils;

import java.util.function.Supplier;

/** A broker's clock that is off by as many milliseconds as CLOCK_AHEAD_MS says; it stands before Kafka's own. */
class SystemTime implements Time {
    private static final SystemTime ONE = new SystemTime();
    private final long ahead = Long.parseLong(System.getenv().getOrDefault("CLOCK_AHEAD_MS", "0"));

    public static SystemTime getSystemTime() {
        return ONE;
    }

    public long milliseconds() {
        return System.currentTimeMillis() + ahead;
    }

    public long nanoseconds() {
        return System.nanoTime();
    }

    public void sleep(long ms) {
        Utils.sleep(ms);
    }

    public void waitObject(Object monitor, Supplier<Boolean> holds, long deadlineMs) throws InterruptedException {
        synchronized (monitor) {
            while (!holds.get()) {
                long left = deadlineMs - milliseconds();
                if (left <= 0) {
                    throw new org.apache.kafka.common.errors.TimeoutException("it did not come to hold in time");
                }
                monitor.wait(left);
            }
        }
    }
}
