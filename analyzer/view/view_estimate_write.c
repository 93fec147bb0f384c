/* Helper functions of the sections of an estimate. */
#include "analyzer/view/view_estimate_parts.h"

#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/estimate/serving.h"

char *view_estimate_bytes(char out[UNITS_TEXT], double bytes)
{
    return units_format_bytes(out, units_whole(bytes + 0.5));
}

char *view_estimate_range(const struct view_estimate *v, char out[VIEW_RANGE], struct estimate_interval bytes)
{
    char low[UNITS_TEXT], high[UNITS_TEXT];
    const char *unit;

    out[0] = 0;
    if (bytes.high <= bytes.low) return out;
    view_estimate_bytes(low, bytes.low);
    view_estimate_bytes(high, bytes.high);
    unit = strchr(low, ' ');
    if (unit && strchr(high, ' ') && strcmp(unit, strchr(high, ' ')) == 0) low[unit - low] = 0;
    snprintf(out, VIEW_RANGE, "%s %s %s", low, v->term.utf8 ? "–" : "-", high);
    return out;
}

void view_estimate_wrap(const struct view_estimate *v, int hang, int at, const char *text)
{
    text_wrap(v->out, &v->term, hang, at, false, text);
}

void view_estimate_indented(const struct view_estimate *v, const char *text)
{
    fprintf(v->out, "%*s", INDENT, "");
    view_estimate_wrap(v, INDENT, INDENT, text);
}

/* A model that produces no further tokens has a forward pass. */
const char *view_estimate_phase(const struct view_estimate *v, int phase)
{
    static const char *const words[ESTIMATE_PHASES_N] = {"end of forward", "end of backward", "optimizer step",
                                                         "load",           "prefill",         "decode",
                                                         "text encoders",  "denoising step",  "VAE decodes"};
    bool once = v->a->plan.inference && v->a->plan.model->shape.family != MODEL_UNKNOWN &&
                !estimate_serving_decodes(&v->a->plan);

    if (v->a->result.phase[phase].high <= 0 || (once && phase == PHASE_DECODE)) return NULL;
    return once && phase == PHASE_PREFILL ? "forward pass" : words[phase];
}

void view_estimate_sentence(const struct view_estimate *v, int indent, const char *text)
{
    char line[512];
    size_t n = (size_t)snprintf(line, sizeof line, "%s", text);

    n = n < sizeof line - 1 ? n : sizeof line - 2;
    if (!n) return;
    if (line[0] >= 'a' && line[0] <= 'z' && line[1] >= 'a' && line[1] <= 'z') line[0] = (char)(line[0] - 'a' + 'A');
    if (!strchr(".!?", line[n - 1])) snprintf(line + n, sizeof line - n, ".");
    fprintf(v->out, "%*s", indent, "");
    view_estimate_wrap(v, indent, indent, line);
}
