#include "analyzer/base/each.h"
#include "analyzer/base/text.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/term.h"
#include "schema/shell_word.h"
#include "schema/utf8.h"

#define TEXT_MAX 4096

/* What follows `folder`/ in `path`, or NULL if `path` is not below `folder`. */
static const char *path_below(const char *path, const char *folder)
{
    size_t n = folder ? strlen(folder) : 0;

    while (n > 1 && folder[n - 1] == '/') n--;
    if (n < 2 || strncmp(path, folder, n) != 0 || path[n] != '/') return NULL;
    return path + n + 1;
}

bool text_is_below(const char *path, const char *folder)
{
    return path_below(path, folder) != NULL;
}

bool text_ends_with(const char *text, const char *ending)
{
    const size_t n = text ? strlen(text) : 0, m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

const char *text_last_part(const char *name)
{
    const char *dot = name ? strrchr(name, '.') : NULL;
    return dot ? dot + 1 : name ? name : "";
}

size_t text_without_comprehension(const char *function)
{
    static const char *const kinds[] = {".<locals>.<listcomp>", ".<locals>.<dictcomp>", ".<locals>.<setcomp>",
                                        ".<locals>.<genexpr>"};
    size_t n = strlen(function);

    for (size_t i = 0; i < COUNT_OF(kinds);) {
        const size_t length = strlen(kinds[i]);
        const bool ends = n > length && strncmp(function + n - length, kinds[i], length) == 0;
        n -= ends ? length : 0;
        i = ends ? 0 : i + 1;
    }
    return n;
}

bool text_is_same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

bool text_has_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words)) return true;
    return false;
}

bool text_is_listed(const char *text, const char *const *words, size_t n)
{
    return ANY_OF(w, words, n, strcmp(text, *w) == 0);
}

void text_put(char *out, size_t size, const char *format, ...)
{
    int n = TEXT_FORMAT(out, size, format);
    if (n < 0 || (size_t)n < size || !size) return;
    size_t end = size - 1, start = end; /* also remove an incomplete character at the end */
    while (start > 0 && ((unsigned char)out[start - 1] & 0xc0) == 0x80) start--;
    if (start > 0 && (unsigned char)out[start - 1] >= 0xc0) start--;
    if (start < end && !gs_utf8_decode(out + start, end - start, NULL)) out[start] = 0;
}

char *text_path_here(char *out, size_t size, const char *path)
{
    char cwd[PATH_MAX];
    const char *here = getcwd(cwd, sizeof cwd) ? path_below(path, cwd) : NULL;

    return gs_shell_path(out, size, here ? here : path);
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || (c & 0x80);
}

/* Between "a b", "a_b", "a.b", and in "aB". */
static bool is_between_words(const char *p)
{
    return !is_letter(p[0]) || !is_letter(p[-1]) || (isupper((unsigned char)p[0]) && !isupper((unsigned char)p[-1]));
}

/* The end of `text` that fits into `columns`; it starts with a word if that takes at least half of them. */
static const char *text_tail(const char *text, int columns)
{
    const char *p = text + strlen(text);

    while (p > text) {
        const char *before = p - 1;
        while (before > text && ((unsigned char)*before & 0xc0) == 0x80) before--;
        if (terminal_columns(before) > columns) break;
        p = before;
    }
    const char *word = p;
    while (word > text && *word && !is_between_words(word)) word++;
    word += strspn(word, " :.>)");
    word += word[0] == '_' && is_letter(word[1]);
    return terminal_columns(word) >= columns / 2 ? word : p;
}

/* The bytes of the beginning of `text` that fit into `columns`; it ends with a word if that leaves at least half. */
static size_t head_length(const char *text, int columns)
{
    const size_t fits = terminal_fit(text, columns);
    size_t n = fits;

    while (n > 0 && !is_between_words(text + n)) n--;
    while (n > 0 && text[n - 1] == ' ') n--;
    return 2 * n >= fits ? n : fits;
}

char *text_elide(char *out, size_t size, const char *text, int columns, bool utf8)
{
    const char *mark = utf8 ? "…" : "...";
    int room = columns - (utf8 ? 1 : 3);

    if (terminal_columns(text) <= columns || room < 2) {
        text_put(out, size, "%.*s", (int)terminal_fit(text, columns < 0 ? 0 : columns), text);
        return out;
    }
    /* the end matters more: it has a path's file, or a function's own name */
    const char *tail = text_tail(text, room - room / 3);
    text_put(out, size, "%.*s%s%s", (int)head_length(text, room - terminal_columns(tail)), text, mark, tail);
    return out;
}

/* What a compiler appends to the name of a function's copy. */
static bool is_name_suffix(const char *part)
{
    static const char *const suffixes[] = {"constprop", "isra", "part", "cold", "llvm", "lto_priv", "localalias"};

    return ANY_OF(s, suffixes, COUNT_OF(suffixes), strncmp(part, *s, strlen(*s)) == 0) ||
           (*part >= '0' && *part <= '9');
}

/* The next part of "torch::autograd::apply" or "Trainer.step"; NULL: there is none. */
static const char *next_name_part(const char *name)
{
    for (const char *p = name; *p; p++) {
        if (*p == '(') return NULL; /* of parameters, or a phrase */
        if (p[0] == ':' && p[1] == ':') return p + 2;
        if (p[0] == '.' && p > name && p[1] && p[1] != '.') return is_name_suffix(p + 1) ? NULL : p + 1;
    }
    return NULL;
}

char *text_name(char *out, size_t size, const char *name, int columns, bool utf8)
{
    const char *mark = utf8 ? "…" : "...";
    const int room = columns - (utf8 ? 1 : 3);

    const char *part = name;

    if (terminal_columns(name) <= columns || !next_name_part(name)) return text_elide(out, size, name, columns, utf8);
    while (part && (*part == '<' || terminal_columns(part) > room)) part = next_name_part(part);
    if (!part || terminal_columns(part) < room / 2) part = text_tail(name, room);
    text_put(out, size, "%s%s", mark, part);
    return out;
}

static const char *word_name(const char *word, size_t length)
{
    const char *slash = *word == '-' ? NULL : memrchr(word, '/', length);
    return slash ? slash + 1 : word;
}

bool text_is_kernel(const char *command)
{
    static const char *const words[] = {"ipykernel_launcher", "colab_kernel_launcher", "-m ipykernel",
                                        "/xpython ",          "xpython_launcher",      "-m spyder_kernels"};
    return ANY_OF(w, words, COUNT_OF(words), strstr(command, *w));
}

char *text_command(char *out, size_t size, const char *command, int columns, bool utf8)
{
    if (text_is_kernel(command)) return text_elide(out, size, "Jupyter kernel", columns, utf8);
    char brief[TEXT_MAX];
    const char *mark = utf8 ? "…" : "...";
    const size_t program = strcspn(command, " "), gap = command[program] == ' ';
    const char *name = word_name(command, program), *script = command + program + gap;

    if (terminal_columns(command) <= columns) return text_elide(out, size, command, columns, utf8);
    text_put(brief, sizeof brief, "%.*s%s%s", (int)(command + program - name), name, gap ? " " : "",
             word_name(script, strcspn(script, " ")));
    const int room = columns - terminal_columns(mark);
    const size_t fits = room > 0 ? terminal_fit(brief, room) : 0;
    if (terminal_columns(brief) <= columns || !fits || strstr(brief + fits, ".py"))
        return text_elide(out, size, brief, columns, utf8);
    text_put(out, size, "%.*s%s", (int)fits, brief, mark);
    return out;
}

/* Folders whose contents are named by the part after them. marimo names a cell by a file that does not exist, in a
 * folder of the process. */
static const char *name_below_folder(const char *path)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
    const char *cell = strstr(path, "/__marimo__cell_");

    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        const char *at = strstr(path, folders[i]);
        if (at) return at + strlen(folders[i]);
    }
    return cell ? cell + 1 : NULL;
}

/* The end of a path, starting at a slash, as long as it fits: "…/data/loader.py"; at least the file, "loader.py". */
static bool elide_folders(char *out, size_t size, const char *path, int columns, const char *mark, int mark_columns)
{
    const char *file = strrchr(path, '/');
    for (const char *slash = strchr(path, '/'); slash != file; slash = strchr(slash + 1, '/')) {
        if (terminal_columns(slash) + mark_columns <= columns) {
            text_put(out, size, "%s%s", mark, slash);
            return true;
        }
    }
    if (!file || terminal_columns(file + 1) > columns) return false;
    text_put(out, size, "%s", file + 1);
    return true;
}

char *text_path(char *out, size_t size, const char *path, const char *cwd, int columns, bool utf8)
{
    char clean[TEXT_MAX];
    const char *shown = path_below(path, cwd), *below = name_below_folder(shown ? shown : path);

    terminal_clean(clean, sizeof clean, below ? below : shown ? shown : path, utf8);
    if (terminal_columns(clean) <= columns ||
        !elide_folders(out, size, clean, columns, utf8 ? "…" : "...", utf8 ? 1 : 3))
        text_elide(out, size, clean, columns, utf8);
    return out;
}

/* How much of `p` to keep although it has brackets: names that consist of them. */
static size_t literal_length(const char *p)
{
    static const char *const names[] = {"(anonymous namespace)",
                                        "operator()",
                                        "operator<=>",
                                        "operator<<=",
                                        "operator>>=",
                                        "operator->*",
                                        "operator<<",
                                        "operator>>",
                                        "operator<=",
                                        "operator>=",
                                        "operator->",
                                        "operator<",
                                        "operator>",
                                        "operator[]",
                                        "operator"};

    const size_t receiver = strncmp(p, ".(*", 3) == 0 ? strcspn(p, ")") : 0; /* Go's "main.(*Server).handle" */
    if (receiver && p[receiver]) return receiver + 1;
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strncmp(p, names[i], strlen(names[i])) == 0) return strlen(names[i]);
    return 0;
}

/* The position after the bracket that closes the one at p, or the end. */
static const char *text_behind_operator(const char *p)
{
    static const char open[] = "([{", close[] = ")]}";
    int depth = 0;

    do {
        depth += strchr(open, *p) != NULL;
        depth -= strchr(close, *p) != NULL;
        p++;
    } while (*p && depth > 0);
    return p;
}

/* What follows a function's parameters if the function is the scope of something else, as in "f(int)
 * const::{lambda()#1}::operator()() const"; NULL: they end the name. */
static const char *skip_continuation(const char *p)
{
    static const char qualifier[] = " const";

    p = text_behind_operator(p);
    if (strncmp(p, qualifier, sizeof qualifier - 1) == 0) p += sizeof qualifier - 1;
    p += strspn(p, " &");
    return p[0] == ':' && p[1] == ':' ? p : NULL;
}

/* "{lambda(int)#1}" → "{lambda#1}". Returns where to continue. */
static const char *skip_braces(const char *p, char **to)
{
    const char *end = text_behind_operator(p);

    while (p < end)
        if (*p == '(')
            p = text_behind_operator(p) < end ? text_behind_operator(p) : end;
        else
            *(*to)++ = *p++;
    return end;
}

/* "a::b<int>::c(float) const [clone .isra.0]" → "a::b::c". Rust's "<a::B<T> as C>::d" keeps its angle brackets. */
static void strip_text(char *text)
{
    const int rust = text[0] == '<';
    const char *p = text + rust, *next;
    char *to = text + rust;
    int depth = 0;

    while (*p) {
        size_t keep = depth ? 0 : literal_length(p);
        if (keep) {
            memmove(to, p, keep);
            to += keep;
            p += keep;
        } else if (!depth && *p == '{') {
            p = skip_braces(p, &to);
        } else if (!depth && (*p == '(' || (*p == '[' && !rust)) && to > text) {
            if (!(next = skip_continuation(p))) break;
            p = next;
        } else {
            bool generic = *p == '<';
            if (generic && !depth && to > text + 2 && to[-1] == ':') /* Rust's "f::<int>" */
                to -= 2;
            if (depth == 0 && !generic) *to++ = *p;
            depth += generic;
            depth -= *p == '>' && depth && p[-1] != '-';
            p++;
        }
    }
    while (to > text && to[-1] == ' ') to--;
    *to = 0;
}

/* "decltype (a(b)) c::d" → "c::d". */
static char *without_decltype(char *text)
{
    static const char word[] = "decltype";
    char *p = text + sizeof word - 1;

    if (strncmp(text, word, sizeof word - 1) != 0) return text;
    p += strspn(p, " ");
    if (*p != '(') return text;
    p += text_behind_operator(p) - p;
    p += strspn(p, " &*");
    return *p ? p : text;
}

/* Templates are demangled with their return type first: "void f" → "f". The blanks of "operator new" and "(anonymous
 * namespace)" belong to the names. */
static char *without_return_type(char *text)
{
    char *operator_ = strstr(text, "operator"), *name = text;

    for (char *p = text; *p && p != operator_; p++) {
        if (*p == '(') return name;
        if (*p == ' ') name = p + 1;
    }
    return name;
}

char *text_function(char *out, size_t size, const char *function, int columns, bool utf8)
{
    char clean[TEXT_MAX], *name = clean;

    terminal_clean(clean, sizeof clean, function, utf8);
    clean[text_without_comprehension(clean)] = 0;
    /* Python's own names ("<module>", "f.<locals>.<lambda>") are not templates. */
    bool rust = clean[0] == '<' && strstr(clean, ">::");
    if (rust || (clean[0] != '<' && !strstr(clean, ".<"))) {
        name = without_decltype(clean);
        strip_text(name);
        name = rust ? name : without_return_type(name);
    }
    return text_name(out, size, name, columns, utf8);
}

static size_t text_blank(const char *text)
{
    return strcspn(text, " \n");
}

/* Is it one of the units after which a time goes on: "18 h 26 min"? */
static bool is_part_of_time(const char *unit, size_t n)
{
    static const char *const units[] = {"d", "h", "min"};

    return ANY_OF(u, units, COUNT_OF(units), n == strlen(*u) && strncmp(unit, *u, n) == 0);
}

size_t text_word_length(const char *text)
{
    size_t n = text_blank(text);
    const size_t sign = strspn(text, "(+-~<");
    if (n == 3 && strncmp(text, "GPU ", 4) == 0 && strchr("0123456789", text[4]) && text[4])
        return 4 + text_blank(text + 4);
    if (n == 2 && strncmp(text, "In [", 4) == 0 && text[4 + strspn(text + 4, "0123456789")] == ']')
        return 3 + text_blank(text + 3);
    const bool number = n > sign && strspn(text + sign, "0123456789.,") == n - sign;

    while (number && text[n] == ' ') {
        const char *unit = text + n + 1;
        const size_t length = text_blank(unit);
        n += 1 + length;
        if (!is_part_of_time(unit, length) || unit[length] != ' ' || !strchr("0123456789", unit[length + 1])) break;
        n += 1 + text_blank(unit + length + 1);
    }
    return n;
}

size_t text_line_length(const char *text, int columns)
{
    const size_t fits = terminal_fit(text, columns);
    size_t end = 0;

    if (!text[fits]) return fits;
    for (size_t at = strspn(text, " "); text[at]; at = end + strspn(text + end, " ")) {
        const size_t next = at + text_word_length(text + at);
        if (next > fits) break;
        end = next;
    }
    return end ? end : fits;
}

/* How much of a word to print on a line of `columns`: all of it, or else up to a sign between its parts. */
static size_t part_of_word(const char *word, int columns)
{
    const size_t fits = terminal_fit(word, columns);
    size_t n = fits;

    if (!word[fits]) return fits;
    while (n > 1 && !strchr("/_,.;=-", word[n - 1])) n--;
    if (n > fits / 2) return n;
    return fits ? fits : strlen(word);
}

void text_wrap(FILE *out, const struct terminal *term, int hang, int at, bool whole, const char *text)
{
    enum { WORD_LINES = 4 };
    char clean[4096], word[4096], given[4096];
    const char *p = terminal_clean(clean, sizeof clean, text, term->utf8);
    const int room = term->width - hang;
    bool first = true; /* of its line */

    for (p += strspn(p, " "); *p; p += strspn(p, " ")) {
        size_t n = text_word_length(p);
        snprintf(given, sizeof given, "%.*s", (int)n, p);
        text_elide(word, sizeof word, given, whole ? (int)sizeof word : WORD_LINES * room, term->utf8);
        const char *left = word; /* of the word */
        int width = terminal_columns(word);
        if (at > hang && at + !first + width > term->width) {
            fprintf(out, "\n%*s", hang, "");
            at = hang;
            first = true;
        }
        for (size_t part; !whole && at + !first + terminal_columns(left) > term->width &&
                          (part = part_of_word(left, term->width - at - !first)) < strlen(left);
             left += part, at = hang, first = true)
            fprintf(out, "%s%.*s\n%*s", first ? "" : " ", (int)part, left, hang, "");
        fprintf(out, "%s%s", first ? "" : " ", left);
        at += terminal_columns(left) + !first;
        first = false;
        p += n;
    }
    fputc('\n', out);
}
