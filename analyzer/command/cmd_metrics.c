/* gpuspy metrics: figures of all active recordings for Prometheus. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/command/commands.h"
#include "analyzer/fleet/serve.h"

#define ADDRESS "127.0.0.1:9464"

struct settings {
    const char *listen, *textfile, *interval;
    int lines;
    bool once;
};

const struct command_text command_text_metrics = {
    .options = OPTION_ROWS(
        {"listen", 'l', OPTION_TEXT, offsetof(struct settings, listen), "ADDRESS:PORT", NULL, 0, 0,
         "serve /metrics on this address and no other; default " ADDRESS ", unless --textfile or --once is given"},
        OPTION_ROW(FILE, "textfile", 't', textfile, "FOLDER",
                   "write FOLDER/gpuspy.prom for node_exporter's textfile collector, and remove it at the end"),
        OPTION_ROW(TEXT, "interval", 'i', interval, "SECONDS", "with --textfile: write every N seconds; default 15"),
        {"lines", 'n', OPTION_NUMBER, offsetof(struct settings, lines), "N", NULL, 1, FLEET_LINES_MAX,
         "per process, the N lines that hold most; default 10"},
        OPTION_ROW(FLAG, "once", '1', once, NULL, "print the metrics once (OpenMetrics) and exit")),
    .about =
        "Serves metrics of all running recordings of this machine, as OpenMetrics or in Prometheus's text format: "
        "live and peak memory by layer, the cache, the lines that hold most, growth and time until the GPU is full, "
        "waits, copies, failed allocations. Metrics that need a report (memory at the peak by category, growth per "
        "step, step time) appear later than the others, because a child process computes them from time to "
        "time.\n\nLabels: "
        "run_id, pid, gpu (the entry of CUDA_VISIBLE_DEVICES, else CUDA's number) and rank. Three more come from the "
        "process's environment: job_id (SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, JOB_ID or TORCHELASTIC_RUN_ID), pod "
        "(POD_NAME, or HOSTNAME in Kubernetes) and namespace (POD_NAMESPACE, or that of the service account in "
        "Kubernetes).\n\n"
        "gpuspy reads the recordings that its user may read; root may read all, including those in containers. It "
        "neither authenticates clients nor encrypts. A recording that has ended stays for five minutes. "
        "SIGTERM ends the command with status 0. docs/metrics.md lists the metrics.",
    .examples =
        COMMAND_EXAMPLES({"gpuspy metrics", "serve http://" ADDRESS "/metrics for a Prometheus on this machine"},
                         {"gpuspy metrics --listen 10.0.0.7:9464",
                          "for a Prometheus elsewhere: anyone who reaches the address can read it"},
                         {"gpuspy metrics --textfile /var/lib/prometheus/node-exporter", "through node_exporter"},
                         {"gpuspy metrics --once", "print the metrics once"}),
};

static bool take_metrics_interval(const char *text, double *out)
{
    *out = 15;
    const char *end = text ? units_read_decimal(text, out) : "";
    if (!end || *end || *out < 1 || *out > 86400)
        return complain_with(false, "metrics: --interval: '%s' is not a number of seconds from 1 to 86400", text);
    return true;
}

static bool is_textfile_folder(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || (!S_ISDIR(st.st_mode) && (errno = ENOTDIR)) || access(path, W_OK | X_OK) != 0) {
        return complain_with(false, "metrics: cannot write to '%s': %s; give a folder that exists", path,
                             strerror(errno));
    }
    return true;
}

static int print_once(struct fleet *f)
{
    if (!fleet_refresh_whole(f))
        complain(
            "metrics: gpuspy did not read all rows within 20 s; recordings whose gpuspy_unread_rows is above 0 have no "
            "figures of lines, waits, copies or growth. 'gpuspy metrics --textfile DIR' continues to read");
    fleet_analyse_all(f);
    fleet_write(f, true, stdout);
    return EXIT_YES;
}

static int serve_metrics(struct fleet *f, const struct settings *s, struct fleet_service *service)
{
    char address[256], why[512];
    bool usage;
    fleet_stop_on_signals();
    if (service->textfile && !is_textfile_folder(service->textfile)) return EXIT_INPUT;
    if (s->listen || !service->textfile) {
        service->listener =
            fleet_listen(s->listen ? s->listen : ADDRESS, address, sizeof address, why, sizeof why, &usage);
        if (service->listener < 0) return complain_with(usage ? EXIT_USAGE : EXIT_INPUT, "metrics: --listen: %s", why);
        complain("metrics: serving http://%s/metrics", address);
    }
    const int code = fleet_serve(f, service);
    if (service->listener >= 0) close(service->listener);
    return code;
}

int command_metrics(const struct command *self, int argc, char **argv)
{
    struct settings s = {.lines = FLEET_LINES};
    struct fleet_service service = {.listener = -1};
    struct fleet fleet = {.n = 0};
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands > 0) {
        return complain_with(EXIT_USAGE, "metrics: '%s': no operand is expected; gpuspy finds the running recordings",
                             argv[0]);
    }
    if (!take_metrics_interval(s.interval, &service.interval_s)) return EXIT_USAGE;
    if (s.once && (s.listen || s.textfile))
        return complain_with(EXIT_USAGE, "metrics: --once prints and exits; give it without --listen and --textfile");
    fleet.lines = (unsigned)s.lines;
    service.textfile = s.textfile;
    const int code = s.once ? print_once(&fleet) : serve_metrics(&fleet, &s, &service);
    fleet_analysis_stop(&fleet);
    fleet_free(&fleet);
    return code;
}
