"""Validates the instance, a JSON text, of each input line {"schema": …, "instance": …}
against the schema. Prints null or the error."""

import json
import sys

import jsonschema


def fault(schema, text):
    try:
        instance = json.loads(text)
        jsonschema.validate(instance, schema, jsonschema.Draft202012Validator)
    except (ValueError, jsonschema.ValidationError) as e:
        return str(e)
    return None


for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps(fault(case["schema"], case["instance"])))
