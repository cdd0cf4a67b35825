"""Collections of what tools write down by themselves: thoughts, chats, learnings, evidence."""
