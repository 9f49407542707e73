type f = (_: {
a?: null,
b?: number | null,
c?: string[] | {
    x?: string,
    },
d?: (string | number)[],
e?: {
    x?: string,
    },
f?: number[],
g?: any,
h?: never,
i?: any,
// anything
j?: any,
k?: any,
l?: (string | null)[],
m?: any,
}) => any;
