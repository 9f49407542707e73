package turn

// ConstraintParam is the field of the request from which the grammar of the output comes: that of
// the output format, if there is one.
func (t *Turn) ConstraintParam() string { return t.constraintParam }
