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
var identities = words(identityNames)

const identityNames = "safety_identifier user user_id user_profile_id"

// listed are the members of items, blocks, parts, replies and engines' requests that have no row in a
// table of fields, with what may be kept of each; and those with a row, if their values are more than
// texts and numbers wherever they stand. What decides how a request is handled has to be here or in a
// row, so that a record can be replayed. What is a credential, and what has one, must not.
var listed = listedAs(map[keep]string{
	// Who the client's user is: see identities.
	nothing: identityNames,

	// Texts for the model, and what it and tools wrote.
	content: `content error input message output result summary text`,

	// What a model wrote to call a tool, schemas, and what a tool wrote as JSON. Members of these
	// have names of a client or of a model.
	whole: `action actions arguments json_schema operation output_schema parameters properties schema
		structured_content`,

	// Members of these have names of a client or of an engine.
	guarded: `annotations configs filters logprobs ranking_options skills user_location`,

	address: `audio_url file_url image_url url video_url`,
	// Contents, objects with contents, or their URLs.
	link: `document file file_data image input_audio input_image source`,

	members: `add_special_tokens after allowed_domains always approval_request_id approve author bad_words begin
		best_of between_tools blocked_domains call channel chat_completion_request choices citations
		clear_at_least clear_function_results clear_tool_inputs client_metadata command commands
		completed_at connector_id constrain container_id created created_at data default_config delta detail
		developer diff display_height display_width documents early_stopping echo edits end end_index
		end_turn enum environment error_code error_message exclude_tools exit_code fallbacks file_ids
		finish_reason group guided_decoding_backend guided_whitespace_pattern images inference_geo
		input_fidelity input_token_ids input_tokens items keep length_penalty limit max_num_results
		max_output_length max_uses mcp_server_name media_type model_view names never no_stop_trim
		num_results object order outcome output_compression output_token_ids output_tokens partial_images
		path pending_safety_checks prediction previous_input_messages previous_message_id program
		prompt_cache_retention prompt_logprobs quality queries query read_only reason reasoning_text
		recipient redacted_thinking request_id required results return_hidden_states
		return_tokens_as_token_ids revised_prompt score search_content_types search_context_size server_name
		service_tier session signature size skip_special_tokens sources spaces_between_special_tokens speed
		start_index stderr stdout stream_reasoning structural_tag structures timeout timeout_ms title
		token_ids tool tool_changes tool_configuration tool_name tool_names tool_reference tool_references
		trigger triggers truncate_prompt_tokens use_beam_search value_type vector_store_ids
		web_search_options whole working_directory workspace_id`,
})

// keptPlaces says what may be kept of members that mean another thing in each place, by the
// member that they are in.
var keptPlaces = map[string]map[string]keep{
	// Of a block of Messages it is the arguments of a call.
	"input": {"content": whole},
	// Of a chat request it is Ollama's, which may be a schema. Elsewhere it has one.
	"format": {"": whole, "chat_request": whole},
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

func listedAs(lists map[keep]string) map[string]member {
	all := map[string]member{}
	for k, list := range lists {
		for name := range words(list) {
			all[name] = member{keep: k}
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
