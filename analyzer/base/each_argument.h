/* A statement per argument: EACH_ARGUMENT(SET_MEMBER, o, s, bytes, count) is SET_MEMBER(o, s, bytes) SET_MEMBER(o, s,
 * count). At most 12. */
#pragma once

#define EACH_ARGUMENT_1(act, a, b, c) act(a, b, c)
#define EACH_ARGUMENT_2(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_1(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_3(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_2(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_4(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_3(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_5(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_4(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_6(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_5(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_7(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_6(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_8(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_7(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_9(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_8(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_10(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_9(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_11(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_10(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_12(act, a, b, c, ...) act(a, b, c) EACH_ARGUMENT_11(act, a, b, __VA_ARGS__)
#define EACH_ARGUMENT_OF(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, n, ...) EACH_ARGUMENT_##n
#define EACH_ARGUMENT(act, a, b, ...)                                                                  \
    do {                                                                                               \
        EACH_ARGUMENT_OF(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, )(act, a, b, __VA_ARGS__) \
    } while (0)
