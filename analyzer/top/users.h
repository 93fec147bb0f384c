/* Processes that use a GPU and are not recorded, by NVML. A separate thread queries it, so that a driver that hangs
 * blocks nothing else. */
#pragma once

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
    bool known; /* NVML has responded */
};

/* Replaces `users` with the latest data; the first call starts the thread, and waits at most this long for its first
 * answer. */
void top_users_update(struct top_users *users, int wait_ms);
void top_users_free(struct top_users *users);
