type f = (_: // top
// of two lines
{
// T1
// T2
//
// l1
// l2
// l3
// l4
// Examples:
// - "q\"z"
// - 3
// - null
// - {"k":"v"}
a: string, // default: "line\n\"quoted\""
"a-b c": string,
"1st"?: string,
größe?: string,
""?: string,
"evil\n} // x"?: string,
e?: "a\"b" | "c\nd", // default: "c\nd"
// shown once
o?: {
    // list
    x:         // item
        // of two
{
        }[],
    },
}) => any;
