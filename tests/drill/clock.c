// Stands between a program and the C library (LD_PRELOAD): the time of day is ahead by as many
// seconds as the file says that $CLOCK_AHEAD names; without a file it is what it is. What measures
// how long something takes goes on as it does.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    char text[32] = {0};
    long seconds = 0;
    int before = errno;
    const char *path = getenv("CLOCK_AHEAD");
    int saying = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (saying >= 0) {
        if (read(saying, text, sizeof text - 1) > 0) seconds = strtol(text, NULL, 10);
        close(saying);
    }
    errno = before;
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    int of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!failed && of_day) now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (into) *into = exact.tv_sec;
    return exact.tv_sec;
}
