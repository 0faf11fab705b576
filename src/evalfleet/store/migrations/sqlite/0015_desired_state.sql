-- The word that the model and the page use: `desired` is what a machine should be, `state` is how far it is.
alter table host rename column wish to desired;
