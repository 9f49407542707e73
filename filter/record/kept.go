package record

// repeated are the members in which what the filter writes repeats what a client wrote.
var repeated = words("additional_tools data input item items mcp_servers output tool tool_choice tools JSON")

// storeMembers are the members of the store's results that are JSON in base64.
var storeMembers = words("JSON Object SSE")

// secretMembers are hidden also in JSON that the filter wrote, whatever their case. The
// filter writes none of them: this is a second wall.
var secretMembers = words("authorization authorization_token domain_secrets api_key")

// identities are the members that name the user of a client. They decide nothing that a replay
// needs, and are hidden also where the filter repeats them. The session that prompt_cache_key names
// is kept, as the one of a header is.
var identities = words("safety_identifier user user_id user_profile_id")

// keptMembers are the members of requests and items of all APIs, with what may be kept of
// each. What decides how a request is handled has to be here, so that a record can be
// replayed. What is a credential, and what has one, must not.
var keptMembers = keptAs(map[keep]string{
	// Texts for the model, and what it and tools wrote.
	content: `content error input message output result summary text`,

	// What a model wrote to call a tool, schemas, and what a tool wrote as JSON. Members of these
	// have names of a client or of a model.
	whole: `action actions arguments guided_json input_examples input_schema json json_schema operation
		output_schema parameters properties schema structured_content structured_outputs`,

	// Members of these have names of a client or of an engine.
	guarded: `annotations configs filters generate_chunk generate_response logit_bias logprobs metadata
		ranking_options skills stream_state user_location`,

	address: `audio_url file_url image_url url video_url`,
	server:  `server_url`,
	// Contents, objects with contents, or their URLs.
	link: `document file file_data image input_audio input_image source`,

	members: `add_generation_prompt add_special_tokens after allowed_callers allowed_domains allowed_tools always
		approval_request_id approve author background bad_words begin best_of between_tools blocked_domains
		budget_tokens cache_control cache_salt call call_id caller channel chat_completion_request chat_request
		choice choices citations clear_at_least clear_function_results clear_tool_inputs client_metadata command
		commands compact_threshold comparison_response_id completed_at connector_id constrain container
		container_id context context_management continue_final_message continuous_usage_stats conversation
		created created_at created_by custom data default_config defer_loading definition delta description
		detail developer diagnostics diff disable_parallel_tool_use display display_height display_height_px
		display_width display_width_px documents eager_input_streaming early_stopping ebnf echo edits
		effort enable_response_messages enabled encrypted_content end_turn enum end environment error_code
		error_message execution exclude_tools exit_code fallbacks file_id file_ids filename
		finish_reason format frequency_penalty function function_call functions generate_summary grammar group
		guided_choice guided_decoding_backend guided_grammar guided_regex guided_whitespace_pattern id
		ignore_eos images include include_reasoning include_stop_str_in_output include_usage index
		inference_geo input_fidelity input_token_ids input_tokens instructions is_error items keep
		length_penalty limit max_completion_tokens max_num_results max_output_length media_type
		max_output_tokens max_tokens max_tool_calls max_uses mcp_server_name mcp_servers messages
		messages_request min_p min_tokens moderation modalities mode model model_view n name names namespace
		never no_stop_trim num_results object order outcome output_compression output_config output_format
		output_token_ids output_tokens parallel_tool_calls partial_images path pattern pending_safety_checks
		phase prediction prefix presence_penalty previous_input_messages previous_message_id
		previous_response_id priority program prompt prompt_cache_key prompt_cache_options
		prompt_cache_retention prompt_logprobs prompt_token_ids prompt_tokens quality queries query read_only
		reason reasoning reasoning_content reasoning_effort reasoning_text recipient redacted_thinking refusal
		regex repetition_penalty request_id require_approval required response_format responses_request results
		revised_prompt return_hidden_states return_token_ids return_token_strs return_tokens_as_token_ids role
		score search_content_types search_context_size seed separate_reasoning
		server_description server_label server_name service_tier session signature size skip_special_tokens
		sources spaces_between_special_tokens speed start_index end_index status stderr stdout stop
		stop_sequences stop_token_ids store stream stream_options stream_reasoning strict structural_tag
		structures syntax system temperature thinking thinking_token_budget thread timeout timeout_ms title
		token_ids tokens tool tool_call_id tool_calls tool_choice tool_configuration tool_name tool_names
		tool_reference tool_use_id tools top_k top_logprobs top_p trigger triggers truncate_prompt_tokens
		truncation ttl type use_beam_search value_type vector_store_ids
		verbosity web_search_options whole workspace_id working_directory chat_template_kwargs disable_reasoning
		enable_thinking generate max_thinking_tokens parse_tool_calls partial random_seed reasoning_budget
		reasoning_budget_tokens reasoning_details reasoning_format reasoning_split repeat_penalty think
		thinking_blocks thinking_budget thinking_budget_tokens thinking_mode exclude usage json_object
		enable clear_at display_number enable_zoom max_characters tool_changes tool_references toolset_name`,
})

// keptPlaces says what may be kept of members that mean another thing in each place, by the
// member that they are in.
var keptPlaces = map[string]map[string]keep{
	// Of a block of Messages it is the arguments of a call.
	"input": {"content": whole},
	// Of an item it is what the model wrote. Elsewhere it may be the code of a grant.
	"code": {
		"input": content, "items": content, "item": content,
		"output": content, "data": content, "content": content,
	},
}

// serverLists are the members with tools and servers.
var serverLists = words("additional_tools mcp_servers tool tools")

// pageTypes are the types of objects about a page that the model has seen, and pageMembers
// those with its address. It stands in the prompt, so that a replay needs the whole of it.
var (
	pageTypes   = words("search_result url_citation web_fetch_result web_search_result web_search_result_location")
	pageMembers = words("source url")
)

func keptAs(lists map[keep]string) map[string]keep {
	all := map[string]keep{}
	for k, list := range lists {
		for name := range words(list) {
			all[name] = k
		}
	}
	return all
}

// keptHeader are the request headers whose values a record has: those that say what a
// request is, and those that decide how the filter handles it. Of any other there is the
// name.
var keptHeader = words(`accept accept-encoding
	anthropic-beta anthropic-version content-encoding content-length content-type
		openai-beta user-agent x-envoy-harmony x-envoy-harmony-codex x-request-id`)

// keptParameters are the parameters of the query that the APIs have.
var keptParameters = words("after before beta include include[] limit order starting_after stream")
