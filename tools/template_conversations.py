"""Conversations for tools/template_compare.py: the shapes that requests take, good and bad."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.\nUnits are metric.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, e.g. 東京 or \"Köln\""},
                "days": {"type": "integer", "description": "How many days", "default": 1},
                "units": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "places": {"type": "array", "items": {"type": "string"}},
                "detail": {"type": ["string", "null"], "nullable": True},
                "options": {"type": "object", "additionalProperties": {"type": "number"}},
                "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                          "required": ["lat"]},
            },
            "required": ["city"],
        },
    },
}
NO_PARAMETERS = {
    "type": "function",
    "function": {"name": "now", "description": "What time it is <now> & here", "parameters": {"type": "object", "properties": {}}},
}
TOOLS = [WEATHER, NO_PARAMETERS]
DOCUMENTS = [
    {"title": "Bees", "text": "Bees make honey.", "doc_id": 7},
    {"title": "Ünïcödé", "text": "Zeile eins\nZeile „zwei“ 🐝"},
]


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


def call(name, arguments, id=None):
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made if id is None else {"id": id, **made}


IMAGE = {"type": "image"}


def text(words):
    return {"type": "text", "text": words}


CALL = call("get_weather", {"city": "Köln", "days": 2, "exact": True, "limit": None, "ratio": 0.5}, "abc123XYZ")
SECOND_CALL = call("now", {}, "def456UVW")

CONVERSATIONS = {
    "user": {"messages": [user("Hello!")], "add_generation_prompt": True},
    "no generation prompt": {"messages": [user("Hello!")]},
    "system": {"messages": [system("Be brief."), user("Who are you?")], "add_generation_prompt": True},
    "multi-turn": {"messages": [system("Be brief. "), user(" One? "), assistant(" Two. "), user("\nThree?\n"),
                                assistant("Four."), user("Five?")], "add_generation_prompt": True},
    "ends with assistant": {"messages": [user("One?"), assistant("Two.")]},
    "unicode": {"messages": [system("Sprich Deutsch – 日本語も可。"), user("Grüße aus Köln 🎉 e\u0301 \u200d \u00a0x\u3000")],
                "add_generation_prompt": True},
    "empty contents": {"messages": [system(""), user(""), assistant(""), user("x")], "add_generation_prompt": True},
    "white space": {"messages": [user("\t indented\r\n\n  lines \u2028 \x1c")], "add_generation_prompt": True},
    "markup": {"messages": [user("<b>&amp; {{ not code }} {% nor this %} \\n \"quoted\" 'single'")], "add_generation_prompt": True},
    "tools offered": {"messages": [user("Weather in Köln?")], "tools": TOOLS, "add_generation_prompt": True},
    "tools and system": {"messages": [system("Use tools."), user("Weather in Köln?")], "tools": [WEATHER],
                         "add_generation_prompt": True},
    "tool call": {"messages": [user("Weather?"), {"role": "assistant", "tool_calls": [CALL]}], "tools": TOOLS},
    "tool call with content": {"messages": [user("Weather?"), assistant("I look.", tool_calls=[CALL]),
                                            tool("{\"temp\": 21.5}", tool_call_id="abc123XYZ", name="get_weather")],
                               "tools": TOOLS, "add_generation_prompt": True},
    "tool result and answer": {
        "messages": [system("Use tools."), user("Weather?"), assistant("", tool_calls=[CALL]),
                     tool("sunny, 21 °C", tool_call_id="abc123XYZ", name="get_weather"), assistant("It is sunny."),
                     user("And tomorrow?")],
        "tools": TOOLS, "add_generation_prompt": True},
    "two tool calls": {
        "messages": [user("Weather and time?"), assistant("", tool_calls=[CALL, SECOND_CALL]),
                     tool("sunny", tool_call_id="abc123XYZ", name="get_weather"),
                     tool("12:00", tool_call_id="def456UVW", name="now"), assistant("Sunny at noon.")],
        "tools": TOOLS},
    "arguments as text": {"messages": [user("Weather?"), assistant("", tool_calls=[call("get_weather", "{\"city\": \"Bonn\"}", "abc123XYZ")])],
                          "tools": TOOLS},
    "bare tool call": {"messages": [user("Weather?"), assistant("", tool_calls=[{"name": "now", "arguments": {"a": [1, {"b": "c"}]}, "type": "function", "id": "abc123XYZ"}])]},
    "short call id": {"messages": [user("Weather?"), assistant("", tool_calls=[call("now", {}, "1")]), tool("12", tool_call_id="1")]},
    "tool result first": {"messages": [tool("12:00")]},
    "structured tool result": {"messages": [user("Weather?"), assistant("", tool_calls=[CALL]),
                                            tool({"temp": 21, "sky": ["clear", None]}, tool_call_id="abc123XYZ")], "add_generation_prompt": True},
    "image": {"messages": [user([IMAGE, text(" What is this? ")])], "add_generation_prompt": True},
    "image and system": {"messages": [system([text("Be brief.")]), user([text("See: "), IMAGE]), assistant([text("A cat.")]),
                                      user("Sure?")], "add_generation_prompt": True},
    "thinking in content": {"messages": [user("2+2?"), assistant("<think>\nEasy.\n</think>\n\nFour."), user("3+3?"),
                                         assistant("<think>\nAlso easy.\n</think>\n\nSix.")]},
    "reasoning field": {"messages": [user("2+2?"), assistant("Four.", reasoning_content="Easy: 2+2."), user("3+3?"),
                                     assistant("Six.", reasoning="As easy.")]},
    "thinking field and call": {"messages": [user("Weather?"), assistant("", thinking="I need the tool.", tool_calls=[CALL]),
                                             tool("sunny", tool_call_id="abc123XYZ")], "tools": TOOLS, "add_generation_prompt": True},
    "thinking off": {"messages": [user("2+2?")], "variables": {"enable_thinking": False, "thinking": False, "reasoning": False},
                     "add_generation_prompt": True},
    "thinking on": {"messages": [user("2+2?")], "variables": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
                    "add_generation_prompt": True},
    "documents": {"messages": [user("What do bees make?")], "documents": DOCUMENTS, "add_generation_prompt": True},
    "documents and tools": {"messages": [user("What do bees make?")], "documents": DOCUMENTS, "tools": [NO_PARAMETERS],
                            "variables": {"controls": {"citations": True, "length": "short"}, "safety_mode": "strict"},
                            "add_generation_prompt": True},
    "builtin tools": {"messages": [user("Search!"), assistant("", tool_calls=[call("brave_search", {"query": "bees"}, "abc123XYZ")])],
                      "variables": {"builtin_tools": ["brave_search", "code_interpreter"], "date_string": "1 Jan 2025",
                                    "tools_in_user_message": False}},
    "tools in system turn": {"messages": [user("Weather?")], "tools": TOOLS, "variables": {"tools_in_user_message": False,
                             "xml_tools": ["a", {"b": 1}], "python_tools": ["def f(): ..."]}, "add_generation_prompt": True},
    "no empty tools": {"messages": [user("Hello!")], "tools": [], "documents": [], "add_generation_prompt": True},
    "null members": {"messages": [{"role": "user", "content": "x", "name": None}, {"role": "assistant", "content": None, "tool_calls": None}, user("y")],
                     "add_generation_prompt": True},
    "only system": {"messages": [system("Be brief.")], "tools": TOOLS, "add_generation_prompt": True},
    "two systems": {"messages": [system("One."), user("x"), system("Two."), user("y")], "add_generation_prompt": True},
    "roles do not alternate": {"messages": [user("x"), user("y")], "add_generation_prompt": True},
    "unknown role": {"messages": [user("x"), {"role": "critic", "content": "y"}], "add_generation_prompt": True},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, user("x")], "add_generation_prompt": True},
    "no content": {"messages": [{"role": "user"}], "add_generation_prompt": True},
    "no role": {"messages": [{"content": "x"}], "add_generation_prompt": True},
    "number as content": {"messages": [user(42)], "add_generation_prompt": True},
    "channel in content": {"messages": [user("x"), assistant("<|channel|>final<|message|>y"), user("z")], "add_generation_prompt": True},
    "slash commands": {"messages": [system("Be brief. /no_think"), user("x /nothink"), assistant("y")], "add_generation_prompt": True},
    "named roles": {"messages": [user("x", name="ann"), assistant("y", name="bot")], "add_generation_prompt": True},
}
