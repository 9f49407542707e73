"""openai-python: effort that changes in mid-conversation, with the SDK's own types."""

import os

import openai
from openai.types.responses import ResponseConfigurationUpdateItemParam
from openai.types.responses.response_configuration_update_item_param_param import ResponseConfigurationUpdateItemParamParam

client = openai.OpenAI(max_retries=0)
ENDLESS = os.environ["ENDLESS"]


def update(effort):
    item = ResponseConfigurationUpdateItemParamParam(type="configuration_update", reasoning={"effort": effort})
    ResponseConfigurationUpdateItemParam.model_validate(item)
    return item


def user(text):
    return {"role": "user", "content": text}


for model in os.environ["EXACT"], os.environ["KEEPS"]:
    # A stored response keeps the update, and says so; the last one counts.
    first = client.responses.create(model=model, input=[user("NOTHINK\nSAY yes")])
    assert first.output_text == "yes" and first.reasoning.effort == "medium", first
    second = client.responses.create(model=model, input=[update("high"), update("low"), user(ENDLESS)], previous_response_id=first.id)
    assert second.usage.output_tokens_details.reasoning_tokens == 20 and second.reasoning.effort == "low", second
    third = client.responses.create(model=model, input=ENDLESS, previous_response_id=second.id, reasoning={"effort": "high"})
    assert third.usage.output_tokens_details.reasoning_tokens == 20 and third.reasoning.effort == "low", third

    # So does a conversation, whose items are what was sent.
    conversation = client.conversations.create(items=[user("Hi")])
    client.responses.create(model=model, input=[update("low"), user("NOTHINK\nSAY yes")], conversation=conversation.id)
    later = client.responses.create(model=model, input=ENDLESS, conversation=conversation.id)
    assert later.usage.output_tokens_details.reasoning_tokens == 20, later
    kinds = [item.type for item in client.conversations.items.list(conversation.id)]
    assert "configuration_update" in kinds, kinds

    # A client that keeps the conversation itself sends the update again.
    history = [user("Hi"), *second.output, update("low"), user(ENDLESS)]
    alone = client.responses.create(model=model, input=history, store=False)
    assert alone.usage.output_tokens_details.reasoning_tokens == 20, alone

    # Chat has no type of its own for it: the item, and Anthropic's message.
    said = [user("Hi"), {"role": "assistant", "content": "yes"}]
    for message in update("low"), {"role": "developer", "output_config": {"effort": "low"}}:
        chat = client.chat.completions.create(model=model, messages=[*said, message, user(ENDLESS)])
        assert chat.usage.completion_tokens_details.reasoning_tokens == 20, chat

    try:
        client.responses.create(model=model, input=[{"type": "configuration_update", "reasoning": {"effort": "most"}}, user("Hi")])
        raise SystemExit("an unknown effort is accepted")
    except openai.BadRequestError as e:
        assert e.param == "input[0].reasoning.effort", e
