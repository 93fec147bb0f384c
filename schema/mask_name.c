/* Names that suggest a secret: tables of words, and rules for their combinations. */
#include "schema/mask_name.h"

#include <string.h>

#define WORDS_MAX 8 /* the last words of a name */

struct word {
    const char *at;
    size_t length;
};

struct name {
    struct word words[WORDS_MAX];
    size_t n;
};

/* Each marks a secret anywhere in a name, unless a word of `properties` ends the name. */
static const char strong[] =
    " password passwords passwd passphrase passcode secret secrets credential credentials cred creds jwt psk apikey "
    "apikeys apitoken accesskey accesstoken authkey authtoken accountkey privatekey secretkey licensekey masterkey "
    "signingkey encryptionkey sharedkey sharedaccesskey subscriptionkey storagekey appkey sshkey passkey authorization "
    "cookie bearer ";
/* password_file is a path, secret_name a name. */
static const char properties[] =
    " file files filename path paths dir directory folder name names id ids type kind url uri host endpoint port len "
    "length limit limits size dim dims count num provider manager helper helpers store mode policy scope scopes field "
    "column col index env var prefix format class min max strength hint ttl expiry expires timeout enable enabled "
    "required stdin prompt version method model layer layers head heads rate weight weights loss acc score ratio "
    "txt json yaml yml toml py pem cfg conf ini csv bin header domain ";
/* These change nothing at the end of a secret's name. */
static const char suffixes[] = " value base64 b64 string plaintext raw prod production dev staging ";
/* Written without a separator from the word before: hftoken, dbpassword. */
static const char *const endings[] = {"passwords", "password", "passwd",     "passphrase",  "secret",
                                      "token",     "apikey",   "credential", "credentials", "accesskey"};

/* Words with which a tokenizer, a batch or a table names its tokens and keys. */
static const char harmless_token[] =
    " pad eos bos unk mask cls sep stop start end image img video audio text placeholder initializer special trigger "
    "instance next per max min num n new modifier target class prompt input output newline add sub pre vocab word "
    "first last prefix suffix think separator boundary blank empty space style concept subject object extra cond null "
    "drop de ";
static const char harmless_key[] =
    " input inputs output outputs prompt text image img label labels target sort primary foreign partition dataset "
    "data metric cache dict state obs observation action reward response answer query question column feature "
    "features message messages chosen rejected group join lookup index map json col field batch loss monitor hot quit "
    "num n per max min x y src tgt source caption video audio conversation instruction id row attr attribute config "
    "block bucket val train test eval rank score layer task step time date name value with by best cross ";
static const char secret_plural[] =
    " api access auth secret private bearer refresh hf huggingface openai github service ";
static const char secret_pass[] =
    " db user root admin mysql postgres pg smtp ftp redis proxy http https email mail imap ssh sudo basic login my "
    "auth "
    "rabbitmq mongo key store sql wifi vnc jupyter ldap es elastic kafka database server client ";
static const char secret_pat[] = " gh github gitlab azure ado ext devops personal bitbucket ";
static const char flags[] = " no enable disable skip without show hide print allow require requires has is return ask ";

static char lower_letter(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool gs_mask_same(const char *text, size_t length, const char *word)
{
    for (size_t i = 0; i < length; i++)
        if (!word[i] || lower_letter(text[i]) != word[i]) return false;
    return !word[length];
}

/* Whether " a list of words " contains it. */
static bool is_word_listed(const char *list, const struct word *w)
{
    for (const char *p = list; w && w->length && (p = strchr(p, ' ')) && *++p;) {
        const size_t n = strcspn(p, " ");
        size_t i = 0;
        while (i < n && i < w->length && lower_letter(w->at[i]) == p[i]) i++;
        if (i == n && n == w->length) return true;
    }
    return false;
}

static bool is_upper_letter(char c)
{
    return c >= 'A' && c <= 'Z';
}
static bool is_lower_letter(char c)
{
    return c >= 'a' && c <= 'z';
}
static bool is_digit_letter(char c)
{
    return c >= '0' && c <= '9';
}

static void add_name_word(struct name *name, const char *at, size_t length)
{
    while (length && is_digit_letter(at[length - 1])) /* oauth2, API_KEY_2 */
        length--;
    if (!length) return;
    if (name->n == WORDS_MAX) memmove(name->words, name->words + 1, --name->n * sizeof *name->words);
    name->words[name->n++] = (struct word){at, length};
}

static void add_compound(struct name *name, const char *at, size_t length)
{
    while (length && is_digit_letter(at[length - 1])) length--;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t n = strlen(endings[i]);
        if (length > n && gs_mask_same(at + length - n, n, endings[i])) {
            add_name_word(name, at, length - n);
            add_name_word(name, at + length - n, n);
            return;
        }
    }
    add_name_word(name, at, length);
}

/* A new word begins at i: "apiKey" has one at K, "APIKey" too. */
static bool does_name_word_begin(const char *s, size_t i, size_t length)
{
    return is_upper_letter(s[i]) && (!is_upper_letter(s[i - 1]) || (i + 1 < length && is_lower_letter(s[i + 1])));
}

static void split_name(struct name *name, const char *s, size_t length)
{
    size_t from = 0;
    name->n = 0;
    for (size_t i = 0; i <= length; i++) {
        const bool gap = i == length || s[i] == '_' || s[i] == '-' || s[i] == '.';
        if (gap || (i > from && does_name_word_begin(s, i, length))) {
            add_compound(name, s + from, i - from);
            from = i + gap;
        }
    }
}

/* The word before the last, NULL if there is none. */
static const struct word *before_last(const struct name *name)
{
    return name->n > 1 ? &name->words[name->n - 2] : NULL;
}

static enum gs_mask_kind by_last(const struct name *name)
{
    const struct word *last = &name->words[name->n - 1], *before = before_last(name);
    const char *at = last->at;
    const size_t n = last->length;
    bool secret = false;

    if (gs_mask_same(at, n, "token"))
        secret = !is_word_listed(harmless_token, before);
    else if (gs_mask_same(at, n, "key"))
        secret = !is_word_listed(harmless_key, before);
    else if (gs_mask_same(at, n, "tokens") || gs_mask_same(at, n, "keys"))
        secret = is_word_listed(secret_plural, before);
    else if (gs_mask_same(at, n, "auth") || gs_mask_same(at, n, "oauth") || gs_mask_same(at, n, "cookies"))
        secret = true;
    else if (gs_mask_same(at, n, "pass") || gs_mask_same(at, n, "pw") || gs_mask_same(at, n, "pwd"))
        secret = !before || is_word_listed(secret_pass, before);
    else if (gs_mask_same(at, n, "pat"))
        secret = is_word_listed(secret_pat, before);
    return secret ? GS_MASK_WEAK : GS_MASK_NOT;
}

enum gs_mask_kind gs_mask_name(const char *s, size_t length)
{
    struct name name;

    split_name(&name, s, length);
    if (!name.n || is_word_listed(properties, &name.words[name.n - 1])) return GS_MASK_NOT;
    for (size_t i = 0; i < name.n; i++)
        if (is_word_listed(strong, &name.words[i])) return GS_MASK_STRONG;
    /* --key-value is a shape of attention, --api-key-value is not */
    while (name.n > 2 && is_word_listed(suffixes, &name.words[name.n - 1])) name.n--;
    return by_last(&name);
}

bool gs_mask_flag(const char *s, size_t length)
{
    struct name name;

    split_name(&name, s, length);
    return name.n > 1 && is_word_listed(flags, &name.words[0]);
}
