/* Names in suggested commands: a shell reads them back byte by byte, and they cannot control the terminal. */
#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "schema/shell_word.h"

static const struct {
    const char *text, *word;
} rows[] = {
    {"run.db", "run.db"},
    {"/a/b-1_2.3+4=5:6,7@8%9", "/a/b-1_2.3+4=5:6,7@8%9"},
    {"my run.db", "'my run.db'"},
    {"it's", "'it'\\''s'"},
    {"", "''"},
    {"-x", "-x"},
    {"~/a", "'~/a'"},
    {"=ls", "'=ls'"},
    {"$HOME", "'$HOME'"},
    {"a\"b", "'a\"b'"},
    {"a\\b", "'a\\b'"},
    {"*?[a]", "'*?[a]'"},
    {"{a,b}", "'{a,b}'"},
    {"#a!b", "'#a!b'"},
    {"gr\xc3\xbc\xc3\x9f"
     "e",
     "'gr\xc3\xbc\xc3\x9f"
     "e'"},
    {"a\nb", "\"$(printf 'a\\012b')\""},
    {"a\n", "\"$(printf 'a')\"'\n'"}, /* only a newline at the end needs a second line */
    {"\xff\xfe", "\"$(printf '\\377\\376')\""},
    {"\033[31m", "\"$(printf '\\033[31m')\""},
    {"a%s'\\\"!$`\t", "\"$(printf 'a\\045s\\047\\134\\042\\041\\044\\140\\011')\""},
    {"\xe2\x80\xae"
     "evil",
     "\"$(printf '\\342\\200\\256evil')\""},
    {"\xed\xa0\x80", "\"$(printf '\\355\\240\\200')\""},
    {"\xc0\xaf", "\"$(printf '\\300\\257')\""},
    {"\xc2\x9b"
     "31m",
     "\"$(printf '\\302\\23331m')\""},
};

static void words_are_as_plain_as_possible(void **state)
{
    char out[256];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(gs_shell_word(out, sizeof out, rows[i].text), rows[i].word);
    assert_string_equal(gs_shell_path(out, sizeof out, "-x"), "./-x");
    assert_string_equal(gs_shell_path(out, sizeof out, "-x y"), "./'-x y'");
    assert_string_equal(gs_shell_path(out, sizeof out, "x"), "x");
}

/* The output of `shell` for the word. */
static void ask(const char *shell, const char *text, const char *word)
{
    char command[512], got[256] = "";
    snprintf(command, sizeof command, "%s -c \"$WORDS\"", shell);
    char words[512];
    snprintf(words, sizeof words, "printf '%%s|' %s", word);
    setenv("WORDS", words, 1);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    assert_int_equal(pclose(f), 0);
    assert_int_equal(n, strlen(text) + 1);
    assert_memory_equal(got, text, n - 1);
    assert_int_equal(got[n - 1], '|');
}

static void shells_give_them_back(void **state)
{
    static const char *const shells[] = {"sh", "bash", "zsh", "ksh"};
    char out[256], each[3] = "x";
    (void)state;
    for (size_t s = 0; s < sizeof shells / sizeof *shells; s++) {
        char known[64];
        snprintf(known, sizeof known, "command -v %s > /dev/null", shells[s]);
        if (system(known) != 0) continue;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            ask(shells[s], rows[i].text, gs_shell_word(out, sizeof out, rows[i].text));
        for (int c = 1; c < 256 && s == 0; c++) {
            each[1] = (char)c;
            ask(shells[s], each, gs_shell_word(out, sizeof out, each));
        }
    }
}

static void text_that_does_not_fit_is_left_out(void **state)
{
    char out[256];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t size = 1; size <= strlen(rows[i].word) + 4; size++) {
            memset(out, 'X', sizeof out);
            gs_shell_word(out, size, rows[i].text);
            assert_string_equal(out, size > strlen(rows[i].word) ? rows[i].word : "");
            assert_int_equal(out[size], 'X');
            gs_shell_path(out, size, "-long name");
            assert_int_equal(out[size], 'X');
        }
}

CASES(words_are_as_plain_as_possible, shells_give_them_back, text_that_does_not_fit_is_left_out)
