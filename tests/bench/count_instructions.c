/* A plugin of qemu-user: counts the instructions that the first thread of a program executes, whatever the
 * architecture, and writes their number to a file (its argument: out=FILE). Debian has no package with qemu's header;
 * what is used of it is declared here. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct block; /* instructions that qemu translates at once */

extern size_t qemu_plugin_tb_n_insns(const struct block *block);
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*on_translation)(plugin_id, struct block *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct block *block, void (*on_execution)(unsigned, void *),
                                                 int registers, void *data);
extern void qemu_plugin_register_atexit_cb(plugin_id id, void (*at_exit)(plugin_id, void *), void *data);

PUBLIC int qemu_plugin_version = 1;

static uint64_t count;
static char out[4096];

static void count_block(unsigned thread, void *instructions)
{
    if (thread == 0) count += (uintptr_t)instructions;
}

static void add_counter(plugin_id id, struct block *block)
{
    qemu_plugin_register_vcpu_tb_exec_cb(block, count_block, 0, (void *)(uintptr_t)qemu_plugin_tb_n_insns(block));
}

static void write_counts(plugin_id id, void *data)
{
    FILE *file = fopen(out, "w");
    if (!file) return;
    fprintf(file, "%llu\n", (unsigned long long)count);
    fclose(file);
}

PUBLIC int qemu_plugin_install(plugin_id id, const void *qemu, int argc, char **argv)
{
    if (argc != 1 || strncmp(argv[0], "out=", 4)) return 1;
    snprintf(out, sizeof out, "%s", argv[0] + 4);
    qemu_plugin_register_vcpu_tb_trans_cb(id, add_counter);
    qemu_plugin_register_atexit_cb(id, write_counts, NULL);
    return 0;
}
