/* Secrets in command lines: words that are masked, and words that only look like a secret. The rows are spellings found
 * in public scripts, documentation and argument parsers; the secrets are made up. */
#include "tests/cases.h"
#include <stdio.h>
#include <string.h>
#include "interpose/arguments.h"
#include "schema/mask.h"

#define HEX40 "0123456789abcdef0123456789abcdef01234567"
#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define MIX34 "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
#define MIX36 "aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456789"

struct row {
    const char *words, *expected; /* words divided by '|' */
};

static const struct row options[] = {
    {"python|train.py|--api-key|sk-abc|--lr|3", "python train.py --api-key *** --lr 3"},
    {"python|x.py|--api_key=hunter2|--lr=3", "python x.py --api_key=*** --lr=3"},
    {"python|x.py|--apiKey|abc", "python x.py --apiKey ***"},
    {"python|x.py|--APIKEY=abc", "python x.py --APIKEY=***"},
    {"python|x.py|-api-key|abc|-v", "python x.py -api-key *** -v"},
    {"python|x.py|--password|correct horse battery|--seed|1", "python x.py --password *** --seed 1"},
    {"python|x.py|--password=a b,c", "python x.py --password=***"},
    {"python|x.py|--password|1234", "python x.py --password ***"},
    {"python|x.py|--password|-abc", "python x.py --password ***"},
    {"python|x.py|--passwd|p", "python x.py --passwd ***"},
    {"python|x.py|--db-pass|p|--user|me", "python x.py --db-pass *** --user me"},
    {"python|x.py|--pass|hunter2", "python x.py --pass ***"},
    {"python|x.py|--hf_token|hf_" MIX34, "python x.py --hf_token ***"},
    {"python|x.py|--hf-token=abc", "python x.py --hf-token=***"},
    {"python|x.py|--hftoken|abc", "python x.py --hftoken ***"},
    {"python|x.py|--huggingface-api-token|abc", "python x.py --huggingface-api-token ***"},
    {"python|x.py|--wandb_token|abc", "python x.py --wandb_token ***"},
    {"python|x.py|--wandb-key|" HEX40, "python x.py --wandb-key ***"},
    {"python|login.py|--key|" HEX40, "python login.py --key ***"},
    {"python|x.py|--bot_token|123456:ABC", "python x.py --bot_token ***"},
    {"python|x.py|--generator_api_key|anything", "python x.py --generator_api_key ***"},
    {"python|x.py|--openai-api-key|abc", "python x.py --openai-api-key ***"},
    {"python|x.py|--pinecone-api-key=abc", "python x.py --pinecone-api-key=***"},
    {"vllm|serve|facebook/opt-125m|--api-key|token-abc123", "vllm serve facebook/opt-125m --api-key ***"},
    {"jupyter|lab|--NotebookApp.token=abc|--ServerApp.password=x",
     "jupyter lab --NotebookApp.token=*** --ServerApp.password=***"},
    {"python|x.py|--use_auth_token|hf_abc", "python x.py --use_auth_token ***"},
    {"python|x.py|--use_auth_token|True", "python x.py --use_auth_token True"},
    {"python|x.py|--use-auth-token|--lr|3", "python x.py --use-auth-token --lr 3"},
    {"python|x.py|--secret|s|--client-secret=t", "python x.py --secret *** --client-secret=***"},
    {"python|x.py|--aws_secret_access_key|a/b+c|--aws-session-token|d",
     "python x.py --aws_secret_access_key *** --aws-session-token ***"},
    {"python|x.py|--credentials|{\"a\": \"b\"}|x", "python x.py --credentials *** x"},
    {"python|x.py|--auth|user:pw|--basic-auth=u:p", "python x.py --auth *** --basic-auth=***"},
    {"python|x.py|--private-key|abc|--ssh_key=x", "python x.py --private-key *** --ssh_key=***"},
    {"python|x.py|--passphrase=x|--encryption-key=y|--license_key|z",
     "python x.py --passphrase=*** --encryption-key=*** --license_key ***"},
    {"python|x.py|--secret-value|x|--api-key-value=y|--api_key_2=z",
     "python x.py --secret-value *** --api-key-value=*** --api_key_2=***"},
    {"python|x.py|--api_keys|a,b", "python x.py --api_keys ***"},
    {"python|x.py|--jwt|abc|--cookie|a=b; c=d", "python x.py --jwt *** --cookie ***"},
    {"curl|-H|X-Api-Key: abc def|-HX-Auth-Token:abc", "curl -H X-Api-Key: *** -HX-Auth-Token:***"},
    {"python|x.py|--no-password|train.csv", "python x.py --no-password train.csv"},
};

static const struct row assignments[] = {
    {"env|HF_TOKEN=abc|python|x.py", "env HF_TOKEN=*** python x.py"},
    {"env|HUGGING_FACE_HUB_TOKEN=abc|WANDB_API_KEY=" HEX40 "|x", "env HUGGING_FACE_HUB_TOKEN=*** WANDB_API_KEY=*** x"},
    {"env|OPENAI_API_KEY=abc|ANTHROPIC_API_KEY=d|x", "env OPENAI_API_KEY=*** ANTHROPIC_API_KEY=*** x"},
    {"env|AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE|AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY|x",
     "env AWS_ACCESS_KEY_ID=*** AWS_SECRET_ACCESS_KEY=*** x"},
    {"env|MLFLOW_TRACKING_PASSWORD=a b|KAGGLE_KEY=c|x", "env MLFLOW_TRACKING_PASSWORD=*** KAGGLE_KEY=*** x"},
    {"docker|run|-e|NGC_API_KEY=abc|--env=DB_PASSWORD=a,b|img",
     "docker run -e NGC_API_KEY=*** --env=DB_PASSWORD=*** img"},
    {"srun|--export=ALL,HF_TOKEN=abc,LR=3|x", "srun --export=ALL,HF_TOKEN=***,LR=3 x"},
    {"bash|-c|HF_TOKEN=abc python x.py --api-key def --lr 3", "bash -c HF_TOKEN=*** python x.py --api-key *** --lr 3"},
    {"sh|-lc|export TOKEN='a b'; python x.py", "sh -lc export TOKEN='***'; python x.py"},
    {"python|x.py|+wandb.api_key=abc|lr=3", "python x.py +wandb.api_key=*** lr=3"},
    {"python|x.py|++trainer.logger.api_key=abc|~x", "python x.py ++trainer.logger.api_key=*** ~x"},
    {"python|x.py|db={user:root,password:abc,port:1}", "python x.py db={user:root,password:***,port:1}"},
    {"python|x.py|credentials.openai=abc|secrets.wandb=d", "python x.py credentials.openai=*** secrets.wandb=***"},
    {"lm_eval|--model_args|pretrained=gpt2,token=abc,dtype=float16",
     "lm_eval --model_args pretrained=gpt2,token=***,dtype=float16"},
    {"lm_eval|--model_args|token=abc,pretrained=gpt2", "lm_eval --model_args token=***,pretrained=gpt2"},
    {"x|host=db user=me password=abc dbname=y", "x host=db user=me password=*** dbname=y"},
    {"x|Server=db;Uid=me;Pwd=abc;Database=y", "x Server=db;Uid=me;Pwd=***;Database=y"},
    {"x|DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc/d+e==;EndpointSuffix=z",
     "x DefaultEndpointsProtocol=https;AccountName=a;AccountKey=***;EndpointSuffix=z"},
    {"python|-c|import x; x.login(token=\"abc def\", add=1)", "python -c import x; x.login(token=\"***\", add=1)"},
    {"python|-c|os.environ[\"HF_TOKEN\"] = 'abc'; y()", "python -c os.environ[\"HF_TOKEN\"] = '***'; y()"},
    {"python|-c|run(['x', '--token', 'abc', 'y'])", "python -c run(['x', '--token', '***', 'y'])"},
    {"python train.py --api-key abc --lr 3",
     "python train.py --api-key *** --lr 3"}, /* the title that the process set itself */
};

static const struct row documents[] = {
    {"x|--config|{\"token\": \"abc\", \"lr\": 3}", "x --config {\"token\": \"***\", \"lr\": 3}"},
    {"x|{'password': 'a b', 'x': 1}", "x {'password': '***', 'x': 1}"},
    {"x|{\"db\":{\"password\":\"a\\\"b\",\"port\":1}}", "x {\"db\":{\"password\":\"***\",\"port\":1}}"},
    {"x|{\\\"apiKey\\\": \\\"abc\\\", \\\"n\\\": 1}", "x {\\\"apiKey\\\": \\\"***\\\", \\\"n\\\": 1}"},
    {"x|{token: abc, lr: 3}", "x {token: ***, lr: 3}"},
    {"x|{\"client_secret\":\"abc\"}", "x {\"client_secret\":\"***\"}"},
    {"x|{\"aws_secret_access_key\" : \"abc\"}", "x {\"aws_secret_access_key\" : \"***\"}"},
    {"x|{\"headers\": {\"Authorization\": \"Bearer abc\"}}", "x {\"headers\": {\"Authorization\": \"Bearer ***\"}}"},
    {"x|{\"auth\": {\"api_key\": \"abc\"}}", "x {\"auth\": {\"api_key\": \"***\"}}"},
    {"x|--set|{\"x-api-key\":\"abc\",\"b\":[1]}", "x --set {\"x-api-key\":\"***\",\"b\":[1]}"},
    {"x|{\"api_keys\": [\"abc\", \"def\"], \"secrets\": {\"openai\": \"abc\"}, \"n\": 1}",
     "x {\"api_keys\": ***, \"secrets\": ***, \"n\": 1}"},
    {"x|{\"secret\":null,\"token\":\"\"}", "x {\"secret\":null,\"token\":\"\"}"},
    {"curl|-H|Authorization: Bearer abc.def", "curl -H Authorization: Bearer ***"},
    {"curl|--header=Authorization: Basic dXNlcjpwdw==", "curl --header=Authorization: Basic ***"},
    {"curl|-H|authorization: token abc", "curl -H authorization: token ***"},
    {"curl|-H|Proxy-Authorization: Digest abc", "curl -H Proxy-Authorization: Digest ***"},
    {"x|--auth|Bearer abc", "x --auth Bearer ***"},
    {"x|Authorization:|Bearer|abcdefgh", "x Authorization: Bearer ***"},
    {"x|--header|Bearer abcdefghij", "x --header Bearer ***"},
    {"x|Cookie: session=abc; other=def", "x Cookie: ***"},
    {"x|X-Vault-Token: abc", "x X-Vault-Token: ***"},
    {"x|Private-Token: abc", "x Private-Token: ***"},
    {"x|-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----|y",
     "x -----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY----- y"},
    {"x|--text|-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "x --text -----BEGIN OPENSSH PRIVATE KEY-----***"},
    {"x|-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc\n-----END PGP PRIVATE KEY BLOCK-----",
     "x -----BEGIN PGP PRIVATE KEY BLOCK-----***-----END PGP PRIVATE KEY BLOCK-----"},
};

static const struct row urls[] = {
    {"x|postgres://u:PW@h/db", "x postgres://u:***@h/db"},
    {"x|--db=postgresql+psycopg2://u:p@ss@h:5432/db?sslmode=require",
     "x --db=postgresql+psycopg2://u:***@h:5432/db?sslmode=require"},
    {"x|mysql://root:p/w@h/db", "x mysql://root:***@h/db"},
    {"x|redis://:pw@h:6379/0", "x redis://:***@h:6379/0"},
    {"x|mongodb+srv://u:pw@c.mongodb.net/?w=majority", "x mongodb+srv://u:***@c.mongodb.net/?w=majority"},
    {"x|amqp://guest:guest@h//", "x amqp://guest:***@h//"},
    {"x|--proxy|http://u:pw@proxy:3128", "x --proxy http://u:***@proxy:3128"},
    {"git|clone|https://oauth2:glpat-abcdefghij0123456789@gitlab.com/a/b.git",
     "git clone https://oauth2:***@gitlab.com/a/b.git"},
    {"git|clone|https://ghp_" MIX36 "@github.com/a/b", "git clone https://***@github.com/a/b"},
    {"x|https://0123456789abcdef0123456789abcdef@o1.ingest.sentry.io/2", "x https://***@o1.ingest.sentry.io/2"},
    {"x|jdbc:mysql://h/db?user=me&password=abc&ssl=1", "x jdbc:mysql://h/db?user=me&password=***&ssl=1"},
    {"x|https://h/api?access_token=abc&page=2", "x https://h/api?access_token=***&page=2"},
    {"x|https://h/?key=AIzabc&q=1", "x https://h/?key=***&q=1"},
    {"x|https://a.blob.core.windows.net/c?sv=2022&sig=ab%2Bc%3D&se=1",
     "x https://a.blob.core.windows.net/c?sv=2022&sig=***&se=1"},
    {"x|https://b.s3.amazonaws.com/k?X-Amz-Signature=" HEX64 "&X-Amz-Security-Token=abc",
     "x https://b.s3.amazonaws.com/k?X-Amz-Signature=***&X-Amz-Security-Token=***"},
    {"x|https://hooks.slack.com/services/T0000/B0000/abcdef", "x https://hooks.slack.com/services/***"},
    {"x|--url|https://discord.com/api/webhooks/123/abc-def", "x --url https://discord.com/api/webhooks/***"},
    {"x|'postgres://u:pw@h/db'", "x 'postgres://u:***@h/db'"},
    {"x|s3://AKIAIOSFODNN7EXAMPLE:abc@bucket/k", "x s3://AKIAIOSFODNN7EXAMPLE:***@bucket/k"},
};

static const struct row formats[] = {
    {"x|sk-" MIX36, "x ***"},
    {"x|a=sk-proj-abcdefgh_" MIX34, "x a=***"},
    {"x|sk-ant-api03-abcdefgh-" MIX34 "-AA", "x ***"},
    {"x|hf_" MIX34, "x ***"},
    {"x|ghp_" MIX36 ",b", "x ***,b"},
    {"x|gho_" MIX36, "x ***"},
    {"x|github_pat_11ABCDEFG0abcdefghijkl_" MIX36, "x ***"},
    {"x|glpat-abcdefghij0123456789", "x ***"},
    {"x|xoxb-123456789012-123456789012-abcdefABCDEF", "x ***"},
    {"x|xoxp-1234567890-abc|xoxa-2-abcdefgh", "x *** ***"},
    {"x|AKIAIOSFODNN7EXAMPLE", "x ***"},
    {"x|(ASIAIOSFODNN7EXAMPLE)", "x (***)"},
    {"x|AIzaSyA-abcdefghijklmnopqrstuvwxyz01234", "x ***"},
    {"x|eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF-_123", "x ***"},
    {"x|nvapi-abcdefghijklmnopqrstuvwxyz", "x ***"},
    {"x|\"npm_" MIX36 "\"", "x \"***\""},
    {"x|gsk_" MIX36, "x ***"},
    {"x|r8_" MIX36, "x ***"},
    {"x|lsv2_pt_0123456789abcdef0123456789abcdef_0123456789", "x ***"},
    {"x|dckr_pat_abcdefghij-klmnopqrstuvw", "x ***"},
    {"x|prefix-hf_" MIX34, "x prefix-***"},
};

static const char *const alike[] = {
    "python x.py --tokenizer gpt2 --max-tokens 512 --num_key_value_heads 8",
    "python x.py --author x --authors a,b --keypoints 17 --keyframe 3",
    "python x.py --token-limit 10 --pad_token_id 0 --key-dim 64 --keep-checkpoints 3 --auth-free yes",
    "python x.py --data tokens.json s3://bucket/key --key-file k.pem --token_path /run/t",
    "python x.py --pad_token <pad> --eos_token </s> --bos-token <s> --unk_token <unk> --mask_token [MASK]",
    "python x.py --start_token <bos> --stop_tokens a b --special_tokens x y",
    "python x.py --image_token <image> --placeholder_token <cat> --initializer_token toy",
    "python x.py --input_key prompt --label_key em --prompt-key text --data.response_key=answer",
    "python x.py --observation_key pixel_crop --action_key actions --target_key x --sort-key name --x_key x_T",
    "python x.py --key_type int64 --num_keys 100 --key_buffer_size=32M --key_name vali --key_delta 1e-12",
    "python x.py --secret-name s --password-file /run/pw --credentials-path c.json --key_vault_name v",
    "python x.py --tokens-per-batch 4096 --max_new_tokens=128 --min-tokens 1 --tokens 512",
    "vllm serve m --allow-credentials --ssl-keyfile k --return-tokens-as-token-ids --enable-request-id-headers",
    "python x.py --monkey 1 --turkey x --hotkey default --donkey y --keynote z --keyboard us",
    "python x.py --seed 42 --key 42 --token 3 --auth none --author-email a@b.c",
    "env TOKENIZERS_PARALLELISM=false XAUTHORITY=/x SSH_AUTH_SOCK=/tmp/s PWD=/home/me python x.py",
    "python x.py --use_key_bias True --share-key --query-key-norm rms --qk_norm",
    "https://h:8080/a@b git@github.com:a/b.git ssh://git@github.com:22/a sqlite:///a@b http://h/a:b@c file:///x:y@z",
    "docker pull registry/x/token:v1 gcr.io/p/auth:latest nvidia/cuda@sha256:abc",
    "python x.py --revision " HEX40 " --sha256 " HEX64,
    "python x.py --name sk-learn --dir hf_transformers_cache --run disk-usage-2024 --a hf_home",
    "python x.py --optimizer.weight_decay=0.1 --passes 3 --num-passes 2 --pass-through --compass n --bypass x",
    "python x.py a==b monkey=1 --secretary bob --passenger 3 --keras.x=1 --credit 4",
    "python x.py --cache_key v1 --group-by-key id --primary_key=id --partition-key day",
    "torchrun --rdzv_id=1 --rdzv_endpoint=h:29500 --rdzv-conf token_timeout=3 x.py",
};

static void words_of(char *out, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i <= n; i++) out[i] = text[i] == '|' ? 0 : text[i];
}

static size_t check(const struct row *rows, size_t n)
{
    char words[1024], out[1024], again[1024];
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        words_of(words, rows[i].words);
        gs_mask_words(out, sizeof out, words, strlen(rows[i].words) + 1);
        gs_mask_arguments(again, sizeof again, out);
        if (strcmp(out, rows[i].expected) != 0)
            print_error("%s\n  is       %s\n  expected %s\n", rows[i].words, out, rows[i].expected), wrong++;
        if (strcmp(again, out) != 0) print_error("%s\n  twice    %s\n", out, again), wrong++;
    }
    return wrong;
}

#define TABLE_TEST(table)                                                \
    static void masks_##table(void **state)                              \
    {                                                                    \
        (void)state;                                                     \
        assert_int_equal(check(table, sizeof table / sizeof *table), 0); \
    }
TABLE_TEST(options)
TABLE_TEST(assignments)
TABLE_TEST(documents)
TABLE_TEST(urls)
TABLE_TEST(formats)

static void look_alikes_stay(void **state)
{
    char words[1024], out[1024];
    size_t wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        const size_t n = strlen(alike[i]);
        for (size_t k = 0; k <= n; k++) words[k] = alike[i][k] == ' ' ? 0 : alike[i][k];
        gs_mask_words(out, sizeof out, words, n + 1);
        if (strcmp(out, alike[i]) != 0) print_error("%s\n  is       %s\n", alike[i], out), wrong++;
        gs_mask_arguments(out, sizeof out, alike[i]);
        if (strcmp(out, alike[i]) != 0) print_error("%s\n  as text  %s\n", alike[i], out), wrong++;
    }
    assert_int_equal(wrong, 0);
}

/* A recording by an older version: blanks have replaced the ends of words. */
static void text_is_masked_too(void **state)
{
    static const struct row rows[] = {
        {"python x.py --api-key abc --lr 3", "python x.py --api-key *** --lr 3"},
        {"python x.py --password=abc postgres://u:pw@h", "python x.py --password=*** postgres://u:***@h"},
        {"HF_TOKEN=abc python x.py", "HF_TOKEN=*** python x.py"},
        {"curl -H Authorization: Bearer abc -v", "curl -H Authorization: Bearer *** -v"},
        {"x --password 'a b' --lr 3", "x --password '***' --lr 3"},
        {"x --token", "x --token"},
        {"x --token=", "x --token="},
        {"", ""},
    };
    char out[256];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gs_mask_arguments(out, sizeof out, rows[i].words);
        assert_string_equal(out, rows[i].expected);
    }
}

/* Wherever the text is cut, no part of the secret remains, and nothing is written beyond the end. */
static void every_length_is_safe(void **state)
{
    static const char words[] = "python\0x.py\0--api-key\0SECRET\0--b=sk-SECRETSECRET0000\0postgres://u:SECRET@h\0"
                                "{\"token\": \"SECRET\"}\0-----BEGIN PRIVATE KEY-----\nSECRET";
    char out[256], in[sizeof words];
    (void)state;
    for (size_t size = 0; size < sizeof out; size++) {
        memset(out, 'X', sizeof out);
        const size_t n = gs_mask_words(out, size, words, sizeof words);
        assert_null(size ? strstr(out, "SECRET") : NULL);
        assert_true(size == 0 || (n < size && out[n] == 0));
        for (size_t i = size; i < sizeof out; i++) assert_int_equal(out[i], 'X');
    }
    for (size_t n = 1; n < sizeof words; n++) { /* a word that is cut is left out: arguments.c */
        memcpy(in, words, n);
        if (in[n - 1] && in[n - 1] != ' ' && in[n - 1] != '\n') continue;
        gs_mask_words(out, sizeof out, in, n);
        assert_null(strstr(out, "SECRET"));
    }
}

static void the_program_without_its_arguments(void **state)
{
    static const struct row rows[] = {
        {"./solver|--in|x", "./solver"},
        {"python|x.py|--token|abc", "python x.py"},
        {"/usr/bin/python3.11|-u|-X|dev|-W|ignore|x.py|a", "/usr/bin/python3.11 -u -X dev -W ignore x.py"},
        {"python|-m|torch.distributed.run|x.py", "python -m torch.distributed.run"},
        {"python|-c|print('secret')|x", "python -c"},
        {"python", "python"},
        {"python|-u", "python"},
        {"bash|run.sh|x", "bash run.sh"},
        {"bash|-c|secret", "bash -c"},
        {"", ""},
    };
    char words[256], out[256];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = strlen(rows[i].words);
        words_of(words, rows[i].words);
        gs_mask_words(out, sizeof out, words, gs_arguments_program(words, n ? n + 1 : 0));
        assert_string_equal(out, rows[i].expected);
    }
}

/* Source code: values that are secrets, and values that only have such a name. Lines keep their numbers. */
static void source_code(void **state)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"api_key = \"SECRET\"\nx = 1\n", "api_key = \"***\"\nx = 1\n"},
        {"password: str = r'SECRET'", "password: str = r'***'"},
        {"os.environ[\"HF_TOKEN\"] = \"SECRET\"", "os.environ[\"HF_TOKEN\"] = \"***\""},
        {"k = os.environ.get('WANDB_API_KEY', 'SECRET')", "k = os.environ.get('WANDB_API_KEY', '***')"},
        {"c = {'password': 'SECRET', 'user': 'me'}", "c = {'password': '***', 'user': 'me'}"},
        {"password = (\n    'SECRET'\n    'SECRET'\n)\ny", "password = (\n    '***'\n    '***'\n)\ny"},
        {"user, password = \"SECRET\", \"SECRET\"", "user, password = \"***\", \"***\""},
        {"password = \"\"\"SECRET\nSECRET\"\"\"\nz", "password = \"\"\"***\n\"\"\"\nz"},
        {"# password: SECRET\nx = 3", "# password: ***\nx = 3"},
        {"dsn = 'Server=x;Password=SECRET'", "dsn = 'Server=x;Password=***'"},
        {"login('hf_SECRETSECRETsecretsecret0123456789')", "login('***')"},
        {"url = f'postgres://me:SECRET@host/db'", "url = f'postgres://me:***@host/db'"},
        {"pem = '''-----BEGIN PRIVATE KEY-----\nSECRET\nSECRET\n-----END PRIVATE KEY-----'''\nx",
         "pem = '''-----BEGIN PRIVATE KEY-----***\n\n\n-----END PRIVATE KEY-----'''\nx"},
        {"if password == 'SECRET':", "if password == '***':"},
        {"passwords = ['SECRET',\n 'SECRET']\nx", "passwords = ['***',\n '***']\nx"},
        {"api_keys = ['one', 'two']", "api_keys = ['***', '***']"},
        {"h = {'Authorization': 'Bearer SECRET'}", "h = {'Authorization': '***'}"},
        {"f(password=SecretStr('SECRET'), n=1)", "f(password=SecretStr('***'), n=1)"},
        /* the text that stays */
        {"cache[key] = out\nself.key = k\n", "cache[key] = out\nself.key = k\n"},
        {"token = tokenizer(text)\nsecret = load()", "token = tokenizer(text)\nsecret = load()"},
        {"features.append(model.features)  # keeps it", "features.append(model.features)  # keeps it"},
        {"# the password:\nx = model(y)", "# the password:\nx = model(y)"},
        {"self.token_embedding = nn.Embedding(n, d)", "self.token_embedding = nn.Embedding(n, d)"},
        {"password = \"\"\nx = \"a\"", "password = \"\"\nx = \"a\""},
    };
    char out[512];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gs_mask_source(out, sizeof out, rows[i].text, strlen(rows[i].text));
        assert_string_equal(out, rows[i].expected);
    }
}

/* Cut anywhere, with little room for the result: nothing is read or written past an end, and the number of lines is the
 * same. */
static void every_length_of_source_is_safe(void **state)
{
    static const char text[] =
        "password = ('''SECRET\nSECRET''', \"SECRET\\\"\")\napi_keys = ['SECRET', {'a': 'SECRET'}]\n"
        "# token: [SECRET SECRET]\n-----BEGIN PRIVATE KEY-----\nSECRET\n";
    char out[1024];
    (void)state;
    for (size_t n = 1; n <= strlen(text); n++) {
        char *copy = test_malloc(n);
        memcpy(copy, text, n);
        for (size_t size = 0; size < 2 * n + 16; size++) {
            const size_t used = gs_mask_source(out, size, copy, n);
            assert_true(size == 0 || (used < size && out[used] == 0));
        }
        size_t before = 0, after = 0;
        for (size_t i = 0; i < n; i++) before += copy[i] == '\n';
        for (const char *p = out; *p; p++) after += *p == '\n';
        assert_int_equal(before, after);
        test_free(copy);
    }
}

CASES(masks_options, masks_assignments, masks_documents, masks_urls, masks_formats, look_alikes_stay,
      text_is_masked_too, every_length_is_safe, the_program_without_its_arguments, source_code,
      every_length_of_source_is_safe)
