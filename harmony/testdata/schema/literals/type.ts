type f = (_: {
c?: "x\"y",
n?: null,
o?: {"a":[1]},
i?: 1 | 2.5 | -3,
m?: "a" | 1 | true | null,
t?: "a" | "b" | null,
list?: ("p" | "q")[],
one?: "p"[],
}) => any;
