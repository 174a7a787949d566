/* A shared object that is no plugin. */
int commsched_something_else;
