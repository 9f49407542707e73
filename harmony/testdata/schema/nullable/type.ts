type f = (_: {
a?: {
    x?: string | null,
    } | null,
b?: "null and void" | null,
c?: string | null,
d?: string | null,
}) => any;
