#include "analyzer/model/model.h"

const char model_names[] =
#define MODEL(name, ...) name "|"
#define PUBLISHED(name, ...) name "|"
#define ALIAS(name, of) name "|"
#define NET(name, ...) name "|"
#include "analyzer/model/models.def"
#include "analyzer/model/published.def"
#include "analyzer/model/convnets.def"
#undef MODEL
#undef PUBLISHED
#undef ALIAS
#undef NET
    "";
