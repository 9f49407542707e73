-- The beginning of every script that reads what may be large. Its last argument is the most
-- bytes that it replies with. If there are more, the reply is their number alone.

local limit = tonumber(ARGV[#ARGV])
local size = 0

-- counted returns a value, whose bytes it counts; false stands for none.
local function counted(value)
	size = size + (value and #value or 0)
	return value
end

-- within returns a reply that has only counted values, or their size.
local function within(reply) return size > limit and size or reply end
