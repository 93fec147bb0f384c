#include "analyzer/input.h"

#include <sys/stat.h>
#include "analyzer/term.h"

bool input_openable(const char *who, char **paths, size_t n)
{
    struct stat st;

    for (size_t i = 0; i < n; i++) {
        if (stat(paths[i], &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
            continue;
        complain("%s: cannot read '%s': it is no file; give a database that gpuspy recorded", who,
                 paths[i]);
        return false;
    }
    return true;
}
