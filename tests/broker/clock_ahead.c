/* Preloaded into a process: its clock, CLOCK_AHEAD_MS ahead of the machine's. Intervals are as long as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead_ms(void) {
    const char *said = getenv("CLOCK_AHEAD_MS");
    return said ? atol(said) : 0;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    static long ahead;
    if (!real) {
        ahead = ahead_ms();
        real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    }
    int failed = real(id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        long ns = at->tv_nsec + ahead % 1000 * 1000000;
        at->tv_sec += ahead / 1000 + (ns >= 1000000000) - (ns < 0);
        at->tv_nsec = ns + (ns < 0) * 1000000000 - (ns >= 1000000000) * 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return failed;
}
