/* JSON of `gpuspy calibrate`: what gpuspy learned from recordings. */
#pragma once

#include <jansson.h>
#include "analyzer/question/learn.h"

/* `l` NULL: only what is known from before. The caller owns the reference. */
json_t *json_calibration(const struct estimate_calibration *c, const struct question_learned *l);
