/* Processes that use a GPU and are not recorded, by NVML. A thread asks it: a driver that hangs holds up nobody. */
#ifndef GPUSPY_TOP_USERS_H
#define GPUSPY_TOP_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct top_user {
    uint32_t pid;
    int device;    /* NVML's number, which may differ from CUDA's in the program */
    int64_t bytes; /* -1 unknown */
    char *command; /* NULL unknown */
};
struct top_users {
    struct top_user *at; /* by pid and device */
    size_t n;
    bool known; /* NVML has answered */
};

/* Replaces `users` with what is known now; the first call starts the thread, and waits for its first answer at most so
 * long. */
void top_users_update(struct top_users *users, int wait_ms);
void top_users_free(struct top_users *users);

#endif
