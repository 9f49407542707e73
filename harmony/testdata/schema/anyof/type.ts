type f = (_: {
// optional
a?: string | null, // default: null
// which
b?:
 | string // by name
 | number // by number default: 1
,
c?: string,
d?: (string | number)[],
}) => any;
