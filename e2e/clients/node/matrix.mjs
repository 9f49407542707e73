// Runs the capabilities of a client script and prints what the client sees. README.md in
// the folder above has the contract.

export const api = process.env.API;
export const baseURL = process.env.OPENAI_BASE_URL;
export const cases = JSON.parse(process.env.MATRIX);
export const model = cases.model;

// nameOf returns the name of an error's class. Some SDKs minify it: then the property
// name has it.
const nameOf = (error) => (error?.name && error.name !== "Error" ? error.name : (error?.constructor?.name ?? String(error)));

// faults makes the capability errors of a function that makes the request of a fault.
export const faults = (run, typeOf = nameOf) => async () => {
  const seen = {};
  for (const [name, fault] of Object.entries(cases.errors)) {
    try {
      await run(fault);
      seen[name] = { type: "", message: "no error" };
    } catch (error) {
      seen[name] = { type: typeOf(error), message: String(error?.message ?? error) };
    }
  }
  return seen;
};

// main runs capabilities by name. Each returns what the client sees; one that the client
// does not have is undefined.
export async function main(capabilities) {
  for (const [capability, run] of Object.entries(capabilities)) {
    if (!run) continue;
    const line = { capability };
    try {
      line.saw = await run();
    } catch (error) {
      console.error(error);
      line.error = String(error);
    }
    process.stdout.write(`${JSON.stringify(line)}\n`);
  }
}
