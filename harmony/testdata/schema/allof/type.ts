type f = (_: {
// one
a?: string,
b?: {
    x?: string,
    } & {
    y?: number,
    },
c?: {
    x?: string,
    } & (string | number),
}) => any;
