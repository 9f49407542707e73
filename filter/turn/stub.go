package turn

import "github.com/envoy-harmony/envoy-harmony/filter/work"

func (v *verifier) answerFollows(_ *work.Account, text []byte) (bool, error) {
	return v.validAnswer(text), nil
}

func (v *verifier) argumentsFollow(_ *work.Account, tool ToolName, text []byte) (bool, error) {
	return v.validArguments(tool, text), nil
}

func (v *verifier) cost(t *checkedText) int { return len(t.text) * 1000 }
