type f = (_: {
a?: {
    // a count
    [key: string]: number,
    },
b?: {
    [key: string]: any,
    },
c?: {
    },
d?: {
    x?: string,
    [key: string]: string | null,
    },
e?: {
    [key: string]: any,
    },
}) => any;
