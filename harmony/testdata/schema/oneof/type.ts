type f = (_: {
// same
a?:
 | string
 | {
   x: number,
   } // first second
 | null
,
b?: (
     | string // s
     | number)[],
c?:
 | "x"
 | "y" // why
,
}) => any;
