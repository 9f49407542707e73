package item

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// The operations of an apply_patch_call.
const (
	createFile = "create_file"
	updateFile = "update_file"
	deleteFile = "delete_file"
)

// patchFile is the part of a patch that is about one file.
type patchFile struct{ operation, path, diff string }

// appendOperation appends the operation of an apply_patch_call:
//
//	{"type":"update_file","path":"a.txt","diff":"@@\n-x\n+y\n"}
//
// delete_file has no diff.
func appendOperation(dst []byte, text string) []byte {
	f := readOperation(text)
	dst = append(append(append(dst, `{"type":"`...), f.operation...), `","path":`...)
	dst = jsontext.AppendString(dst, f.path)
	if f.operation != deleteFile {
		dst = jsontext.AppendString(append(dst, `,"diff":`...), f.diff)
	}
	return append(dst, '}')
}

// withoutDiff is an operation whose diff is not there yet.
func withoutDiff(operation []byte) []byte {
	v := gjson.ParseBytes(operation)
	if !v.Get("diff").Exists() {
		return operation
	}
	dst := append([]byte(`{"type":"`), v.Get("type").Str...)
	dst = jsontext.AppendString(append(dst, `","path":`...), v.Get("path").Str)
	return append(dst, `,"diff":""}`...)
}

// readOperation reads the arguments of a call. A patch with a header for each file,
// as gpt-oss has learned to write it, is an operation if it is about one file; else
// it is the diff of the first file, as it is.
func readOperation(text string) patchFile {
	v := arguments(text)
	if inner := member(v, "operation"); inner.IsObject() {
		v = inner
	}

	patch := plain(member(v, "diff", "patch", "input"))
	// Text that is no JSON is the patch itself, without the function's arguments around it.
	if v.Type == gjson.String {
		patch = v.Str
	}

	path := member(v, "path", "file").Str
	kind := plain(member(v, "type", "operation"))
	if f, ok := readPatch(patch); ok {
		// A path that is an argument of its own is what the model was asked for.
		if path != "" {
			f.path = path
		}
		return f
	}

	f := patchFile{operation: updateFile, path: path, diff: patch}
	switch {
	case strings.HasPrefix(kind, "create"), strings.HasPrefix(kind, "add"):
		f.operation = createFile
	case strings.HasPrefix(kind, "delete"), strings.HasPrefix(kind, "remove"):
		f.operation = deleteFile
	case patch == "" && !isEmpty(v):
		f.diff = text
	}

	return f
}

// patchHeads begin the parts of a patch.
var patchHeads = map[string]string{
	"*** Add File: ":    createFile,
	"*** Update File: ": updateFile,
	"*** Delete File: ": deleteFile,
}

// readPatch reads a patch that begins with a header; false if it has none.
func readPatch(patch string) (f patchFile, ok bool) {
	rest := strings.TrimLeft(patch, " \t\r\n")
	if after, found := strings.CutPrefix(rest, "*** Begin Patch"); found {
		rest = strings.TrimLeft(after, " \t\r\n")
	}

	line, body, _ := strings.Cut(rest, "\n")
	if f.operation, f.path = patchHead(line); f.operation == "" {
		return f, false
	}

	// The operation of the client has no end mark: it would be a line of the file.
	if before, _, found := strings.Cut("\n"+body, "\n*** End Patch"); found {
		body = strings.TrimPrefix(before+"\n", "\n")
	}

	for rest := body; rest != ""; {
		line, rest, _ = strings.Cut(rest, "\n")
		// A second file begins.
		if operation, _ := patchHead(line); operation != "" {
			f.operation, f.diff = updateFile, patch
			return f, true
		}
	}

	f.diff = body

	return f, true
}

// patchHead reads a line that begins the part of a file; "" if it is another line.
func patchHead(line string) (operation, path string) {
	// No head begins another one, so that the order of the map does not matter.
	for head, operation := range patchHeads {
		if path, ok := strings.CutPrefix(line, head); ok {
			return operation, strings.TrimSpace(path)
		}
	}
	return "", ""
}
