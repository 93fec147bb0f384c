/* Models that are known by name, and the door for names and paths. */
#include <stdio.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/command/command.h"
#include "analyzer/command/options.h"
#include "analyzer/model/model.h"

static const struct {
    const char *name;
    uint64_t params;
} models[] = {
#define MODEL(name, params, source) {name, params},
#include "analyzer/model/models.def"
#undef MODEL
};

const char model_names[] =
#define MODEL(name, params, source) name "|"
#include "analyzer/model/models.def"
#undef MODEL
    "";

uint64_t model_preset_params(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0)
            return models[i].params;
    return 0;
}

bool model_named(const char *command, const char *text, struct model *m, int *exit_code)
{
    char near[64];

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strcmp(models[i].name, text) == 0) {
            model_counted(models[i].params, m);
            m->source = "preset";
            snprintf(m->name, sizeof m->name, "%s", text);
            return true;
        }
    }
    *m = (struct model){.source = "preset"};
    if (model_is_path(text))
        return model_from_path(command, text, m, exit_code);
    *exit_code = EXIT_USAGE;
    if (options_nearest(text, model_names, near, sizeof near))
        complain("%s: --model: '%s' is not known; did you mean '%s'?", command, text, near);
    else
        complain("%s: --model: '%s' is not known; 'gpuspy %s --help' lists them", command, text, command);
    return false;
}
