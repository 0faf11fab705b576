-- Why an operator pauses it, as JSON, while its live attempts end: whoever drives it next admits nothing either.
alter table run add column pausing text;
