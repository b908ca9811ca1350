// A worker that sends the flows of a job.

import { sendFlow } from './flow.js';

self.addEventListener('message', ({ data: { port, ...request } }) => sendFlow(port, request, fetch));
