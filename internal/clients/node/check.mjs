// Plays the scenarios with OpenAI's library for Node.js.
// Usage: node check.mjs BASE-URL KEY LIMITED-KEY. Prints {scenario: what was seen} as JSON.
import OpenAI from "openai";

const [base, apiKey, limitedKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base + "/v1", apiKey, maxRetries: 0, timeout: 20_000 });
const user = [{ role: "user", content: "grüße 🌍" }];
const texts = {};

async function collect(name, stream) {
  let finish = null, usage = null;
  for await (const chunk of await stream) {
    for (const choice of chunk.choices) {
      texts[name] = (texts[name] ?? "") + (choice.delta.content ?? "");
      finish = choice.finish_reason ?? finish;
    }
    usage = chunk.usage ?? usage;
  }
  return { text: texts[name] ?? "", finish, usage: usage && usage.completion_tokens };
}

const chat = (model, more, options) => client.chat.completions.create({ model, messages: user, ...more }, options);

const askLimited = (maxRetries) =>
  client.withOptions({ apiKey: limitedKey, maxRetries }).chat.completions.create({ model: "m", messages: user, max_tokens: 1 });

const scenarios = {
  async models() {
    const listed = [];
    for await (const m of client.models.list()) listed.push(m.id);
    return { listed: listed.includes("m"), one: (await client.models.retrieve("m")).id };
  },
  async chat() {
    const r = await chat("m", { max_tokens: 5 });
    return { text: Boolean(r.choices[0].message.content), usage: r.usage.completion_tokens };
  },
  async stream() {
    const got = await collect("stream", chat("m", { max_tokens: 5, stream: true, stream_options: { include_usage: true } }));
    return { ...got, text: Boolean(got.text) };
  },
  async completion() {
    const r = await client.completions.create({ model: "m", prompt: "one two", max_tokens: 3 });
    return { text: Boolean(r.choices[0].text), usage: r.usage.completion_tokens };
  },
  async embeddings() {
    return { vectors: (await client.embeddings.create({ model: "m", input: ["a", "b"] })).data.length };
  },
  async agent() {
    const tools = ["weather", "time"].map((name) => ({
      type: "function", function: { name, parameters: { type: "object", properties: { city: { type: "string" } } } },
    }));
    const messages = [...user];
    for (let rounds = 1, calls = 0; ; rounds++) {
      const answer = (await client.chat.completions.stream({ model: "agent", messages, tools }).finalChatCompletion()).choices[0].message;
      if (!answer.tool_calls?.length) return { text: answer.content, calls, rounds };
      messages.push(answer);
      for (const call of answer.tool_calls) {
        calls++;
        messages.push({ role: "tool", tool_call_id: call.id, content: `${call.function.name} in ${JSON.parse(call.function.arguments).city}` });
      }
    }
  },
  async responses() {
    let text = "";
    for await (const event of await client.responses.create({ model: "responses", input: "hi", stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      if (event.type === "response.completed") return { text, finish: event.response.status };
    }
  },
  unknown_model: () => chat("nobody-has-it"),
  invalid: () => chat("m", { n: 0 }),
  wrong_key: () => client.withOptions({ apiKey: apiKey + "-not" }).chat.completions.create({ model: "m", messages: user }),
  forbidden: () => client.withOptions({ apiKey: limitedKey }).chat.completions.create({ model: "says-401", messages: user }),
  async rate_limited() {
    await askLimited(0);
    await askLimited(0);
  },
  rate_limited_then_served: async () => ({ text: Boolean((await askLimited(3)).choices[0].message.content) }),
  unauthorized: () => chat("says-401"),
  limited: () => chat("says-429"),
  async limited_then_served() {
    const begun = performance.now();
    const r = await chat("says-429-once", {}, { maxRetries: 1 });
    return { text: r.choices[0].message.content, waited: performance.now() - begun >= 1000 };
  },
  overloaded: () => chat("says-503", { stream: true }),
  dies: () => collect("dies", chat("dies", { stream: true })),
  dies_before: () => collect("dies_before", chat("dies-before", { stream: true })),
  cut_short: () => chat("cut-short"),
  stalls: () => chat("silent", {}, { timeout: 2000 }),
  async leaves() {
    const stream = await chat("leaves", { stream: true });
    for await (const chunk of stream) return { text: chunk.choices[0].delta.content };
  },
};

const seen = {};
for (const [name, play] of Object.entries(scenarios)) {
  try {
    seen[name] = await play();
  } catch (e) {
    seen[name] = {
      error: e.constructor.name, status: e.status ?? null, code: e.code ?? null,
      retry_after: e.headers?.get?.("retry-after") ?? null, text: texts[name] ?? "",
    };
  }
}
console.log(JSON.stringify(seen));
