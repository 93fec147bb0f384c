/* A client's request to gpuspy metrics. The input: its bytes. The answer must not depend on what follows a complete
 * head, and gpuspy must not request more bytes than a head may have. */
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include "analyzer/fleet/serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fleet_request request, again;
    const char *text = (const char *)data;
    size = size > FLEET_HEAD_MAX ? FLEET_HEAD_MAX : size;
    for (size_t n = 0; n <= size; n++) {
        const enum fleet_answer answer = fleet_request_read(text, n, &request);
        FUZZ_CHECK(answer != FLEET_MORE || n < FLEET_HEAD_MAX, "%zu", n);
        if (answer == FLEET_MORE) continue;
        FUZZ_CHECK(fleet_request_read(text, size, &again) == answer, "%d", (int)answer);
        FUZZ_CHECK(answer != FLEET_METRICS ||
                       memcmp(text, request.head_only ? "HEAD " : "GET ", request.head_only ? 5 : 4) == 0,
                   "%zu", n);
        break;
    }
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    static const char *const requests[] = {
        "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text; version=1.0.0,*/*;q=0.1\r\n\r\n",
        "HEAD / HTTP/1.0\n\n",
        "GET http://h/metrics?x HTTP/1.1\r\nhost:h\r\n\r\nGET /",
        "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        "OPTIONS * HTTP/2\r\n folded\r\n\r\n",
        "\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) put(requests[i], strlen(requests[i]));
}
