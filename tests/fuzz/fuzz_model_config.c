/* A hostile config.json. The input: the file. */
#include "tests/fuzz/models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model m;
    int exit_code = 0;
    bool ok = model_from_config("estimate", "config.json", (const char *)data, size, &m, &exit_code);
    fuzz_model(ok, exit_code, &m);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    static const char *const seeds[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"model_type\":\"gpt2\"}",
        "{\"model_type\":\"vit\",\"image_size\":[224,224]}",
        "{\"model_type\":\"llama\",\"hidden_size\":512,\"num_hidden_layers\":2,\"num_attention_heads\":8,"
        "\"num_key_value_heads\":2,\"intermediate_size\":1000,\"vocab_size\":100,\"torch_dtype\":\"bfloat16\"}",
        "{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"mistral\",\"sliding_window\":null}}",
        "{\"model_type\":\"mixtral\",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"architectures\":[\"X\"]}",
        "{\"model_type\":\"deepseek_v3\",\"first_k_dense_replace\":3,\"q_lora_rank\":null}",
        "{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":4096,\"max_window_layers\":9,"
        "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"num_hidden_layers\":2}",
        "{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[1,2],\"decoder_sparse_step\":2,\"num_experts\":1e3}",
        "{\"model_type\":\"falcon\",\"new_decoder_architecture\":true,\"num_kv_heads\":8,\"num_attention_heads\":128,"
        "\"hidden_size\":14848}",
        "{\"model_type\":\"new\",\"hidden_size\":64,\"intermediate_size\":1,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":8,\"vocab_size\":2}",
        "{\"model_type\":\"opt\",\"word_embed_proj_dim\":512,\"do_layer_norm_before\":false,\"hidden_size\":1024,"
        "\"num_attention_heads\":16}",
        "{\"model_type\":\"whisper\",\"d_model\":1280,\"encoder_layers\":32,\"decoder_layers\":4,\"num_mel_bins\":128,"
        "\"encoder_attention_heads\":20,\"decoder_attention_heads\":20,\"encoder_ffn_dim\":5120,\"decoder_ffn_dim\":"
        "5120}",
        "{\"model_type\":\"mamba\",\"time_step_rank\":\"auto\",\"expand\":2,\"state_size\":16,\"use_conv_bias\":false}",
        "{\"model_type\":\"mamba2\",\"num_heads\":24,\"head_dim\":64,\"n_groups\":1,\"hidden_size\":768,\"num_hidden_"
        "layers\":9,"
        "\"time_step_limit\":[0.0,Infinity]}",
        "{\"model_type\":\"falcon_mamba\",\"hidden_size\":4096,\"time_step_rank\":256,\"tie_word_embeddings\":false}",
        "{\"model_type\":\"jamba\",\"num_hidden_layers\":8,\"attn_layer_period\":4,\"expert_layer_period\":2,"
        "\"mamba_dt_rank\":\"auto\"}",
        "{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M-*E|\",\"num_hidden_layers\":4,"
        "\"mamba_num_heads\":8,\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"moe_latent_size\":64}",
        "{\"model_type\":\"gemma3n_text\",\"intermediate_size\":[8,9],\"num_hidden_layers\":2,"
        "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"num_kv_shared_layers\":1}",
        "{\"model_type\":\"deepseek_v4\",\"compress_ratios\":[0,4,128],\"num_hidden_layers\":3,\"o_groups\":8,"
        "\"o_lora_rank\":64,\"hc_mult\":4,\"index_n_heads\":4}",
        "{\"model_type\":\"bert\",\"hidden_size\":9223372036854775807,\"num_hidden_layers\":-1}",
        "{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":100000,\"vocab_size\":1000000000,\"hidden_size\":999999999}",
        "{\"model_type\":\"\\u001b[31m\\u202e\",\"hidden_size\":NaN}",
        "{\"a\":1,\"a\":2}",
        "{\"model_type\":\"glm4_moe\"}",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) put(seeds[i], strlen(seeds[i]));
    char deep[4000];
    memset(deep, '[', sizeof deep);
    put(deep, sizeof deep);
}
