type f = (_: {
// of length
unit?: "m" | "ft",
// own text
at?: {
    x?: number,
    },
tree?: {
    kids?: any[],
    },
self?: any,
gone?: any,
far?: any,
// of length
both?: "m" | "ft" | null,
listed?: 
     | string
     | number // count
,
narrowed?: {
    extra?: string,
    } & {
    kids?: any[],
    },
item?: boolean,
}) => any;
