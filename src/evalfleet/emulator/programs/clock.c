/* Loaded before the C library into the programs of an emulated machine whose clock is wrong: SKEW seconds ahead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define NAME "LD_PRELOAD="

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += SKEW;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

/* A program that gives another one a small environment does not give it another clock. */
int execve(const char *path, char *const argv[], char *const envp[]) {
    static int (*real)(const char *, char *const[], char *const[]);
    size_t count = 0;
    int there = 0;
    if (!real) real = dlsym(RTLD_NEXT, "execve");
    for (; envp && envp[count]; count++) there |= !strncmp(envp[count], NAME, sizeof NAME - 1);
    if (there) return real(path, argv, envp);
    char *more[count + 2];
    if (count) memcpy(more, envp, count * sizeof *more);
    more[count] = NAME SELF;
    more[count + 1] = NULL;
    return real(path, argv, more);
}
