/* The last of the scripts: the parts have registered themselves. */
"use strict";
gpuspyPage.start();
