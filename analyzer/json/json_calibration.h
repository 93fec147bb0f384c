/* What was learned from recordings, for programs. */
#ifndef GPUSPY_JSON_CALIBRATION_H
#define GPUSPY_JSON_CALIBRATION_H

#include <jansson.h>
#include "analyzer/question/learn.h"

/* `l` NULL: only what is known. The caller's to decref. */
json_t *json_calibration(const struct estimate_calibration *c, const struct question_learned *l);

#endif
